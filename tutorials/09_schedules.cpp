// Tutorial 9: schedules
//
// The learning rate η is the one number that decides most about a training run, and the best one is not
// the same at its beginning, in its middle and at its end. A schedule is a function η(n) of the number n
// of completed updates:
//
//   warm-up   the optimizer's estimates are poor at first: small steps
//   peak      as fast as it goes without falling over
//   decay     gradients of a few samples are noisy: small steps average the noise away
//
//   make tutorials && build/cpu/tutorials/09_schedules [FOLDER for the picture]
#include <fstream>

#include "sched/sched.h"
#include "train/svg_plot.h"
#include "train/text_plot.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;
using namespace gradus::sched;

std::string folder;  // of the picture

void draw(const char* name, const Schedule& schedule, int64_t steps) {
  std::cout << train::text_plot(train::sample(name, schedule, steps), {.width = 72, .height = 6});
}

// L(x) = ½ x², and a gradient with noise: g = x + ξ, ξ ~ N(0, 1). From x = 10, `steps` updates
// x ← x − η(n) g; the mean of L over the last `tail` updates and 200 runs.
double mean_loss(const Schedule& lr, int64_t steps, int64_t tail) {
  constexpr int64_t kRuns = 200;
  Generator random(7);
  Tensor x = full({kRuns}, 10, DType::f64);
  double sum = 0;
  for (int64_t n = 0; n < steps; ++n) {
    Tensor g = x + normal({kRuns}, random, 0, 1, DType::f64);
    x = x - lr(n) * g;
    if (n >= steps - tail) sum += 0.5 * mean(x * x).item() / double(tail);
  }
  return sum;
}

// x ← (1 − η) x − η ξ has the variance v = (1 − η)² v + η² where it no longer changes: v = η / (2 − η),
// L = ½ v. About 2/η updates in a row are alike, so 200 · 2000 of them leave a relative error of
// √(4 / (400,000 η)), 1.4 % at η = 0.05: 5 % is more than three times as much.
void why_decay() {
  section("Why decay: at a constant rate the noise keeps the loss up");
  for (double eta : {0.5, 0.1, 0.05})
    expect_near("loss where it stays = η / (2 (2 − η))", mean_loss(eta, 3000, 2000),
                eta / (2 * (2 - eta)), 0.05 * eta / (2 * (2 - eta)));
  double large = mean_loss(0.5, 100, 1), small = mean_loss(0.01, 100, 1);
  double decayed = mean_loss(linear(0.5, 0, 100), 100, 1);
  say("after 100 updates: η = 0.5 ", large, ", η = 0.01 ", small, ", from 0.5 down to 0 ", decayed);
  expect("the falling rate beats the large one and the small one by a factor of 4",
         4 * decayed < large && 4 * decayed < small);
}

// Adam divides by √v̂. After one gradient m̂ = g and v̂ = g²: the step is η g/|g|, even if g is all noise.
void why_warm_up() {
  section("Why warm-up: the first step of Adam has full length, however small the gradient");
  for (double g : {1000.0, 1.0, 1e-3}) {
    double m = 0.1 * g, v = 0.001 * g * g;
    expect_near("|first step| / η", (m / 0.1) / (std::sqrt(v / 0.001) + 1e-8), 1, 1e-4);
  }
  Schedule lr = warmup(6e-4, 100, cosine(6e-4, 6e-5, 900));
  draw("warmup(6e-4, 100, cosine(6e-4, 6e-5, 900))", lr, 1000);
  expect_near("the rate at the peak, n = 100, is that of the schedule after it", lr(100), 6e-4, 0);
  expect_near("half-way down the cosine it is the mean of its ends", lr(550), 3.3e-4, 1e-18);
  expect_near("at its end the floor", lr(1000), 6e-5, 0);
}

void no_state() {
  section("A function, not a counter: a resumed run asks for the same n and gets the same rate");
  Schedule lr = exponential(0.1, 0.999);
  float recursive = 0.1f;
  for (int n = 0; n < 10000; ++n) recursive *= 0.999f;
  double off = std::abs(recursive / lr(10000) - 1);
  say("η ← γ η, 10,000 times in f32, is off by ", off);
  // A product rounds by up to ε/2 = 6e-8, γ itself too: up to 10,000 · 1.2e-7 in all.
  expect("the recursive form drifts, by less than n ε", off > 1e-6 && off < 1.2e-3);
  expect_near("the closed form does not", lr(10000), 0.1 * std::exp(10000 * std::log(0.999)),
              1e-17);
}

// Cosine has to know its end from the start. WSD stays at the peak until the end comes: what was
// trained so far serves every length, only the tail is trained again.
void unknown_end() {
  section("If the end is not known: warm-up, stable, decay");
  Schedule shorter = wsd(1e-3, 0, 800, 200), longer = wsd(1e-3, 0, 1600, 400);
  draw("wsd(1e-3, 0, 800, 200)", shorter, 1000);
  bool same = true, cosines_differ = true;
  for (int64_t n = 0; n < 800; ++n) {
    same &= shorter(n) == longer(n);
    cosines_differ &= n == 0 || cosine(1e-3, 0, 1000)(n) < cosine(1e-3, 0, 2000)(n);
  }
  expect("a run of 1000 and one of 2000 updates share the first 800", same);
  expect("two cosines share nothing but their first rate", cosines_differ);
  // The integrals of the four tails over q from 0 to 1:
  struct {
    Tail tail;
    double area;
  } tails[] = {{Tail::linear, 0.5},
               {Tail::cosine, 0.5},
               {Tail::exponential, 1 / std::log(2.0) - 1},
               {Tail::minus_sqrt, 1.0 / 3}};
  for (auto [tail, area] : tails) {
    double sum = 0;
    for (int i = 0; i < 10000; ++i) sum += tail_share(tail, (i + 0.5) / 10000) / 10000;
    say("tail ", tail, ":");
    expect_near("  its share of the peak, on average", sum, area, 1e-6);
  }
}

void in_samples() {
  section("Samples, not steps: the curve of a run does not change with its batch");
  ParamScheduler small({.max = 1, .warmup = 640, .decay = 6400, .style = RateStyle::cosine}, {});
  ParamScheduler large = small;
  for (int i = 0; i < 60; ++i) small.advance(32);
  for (int i = 0; i < 15; ++i) large.advance(128);
  expect_near("60 updates of 32 samples and 15 of 128 end at the same rate", small.now().lr,
              large.now().lr, 0);
}

void picture() {
  section("The usual ones in one picture");
  std::vector<train::Curve> curves;
  auto add = [&](auto name, const Schedule& s) { curves.push_back(train::sample(name, s, 1000)); };
  add("warm-up, cosine", warmup(1, 50, cosine(1, 0.1, 950)));
  add("warm-up, inverse square root", warmup(1, 50, inverse_sqrt(1, 50)));
  add("warm-up, stable, decay", warmup(1, 50, wsd(1, 0, 750, 200)));
  add("restarts", cosine_restarts(1, 0, 150, 2));
  add("step", step(1, 250, 0.5));
  std::string svg = train::svg_plot(curves, {.title = "Schedules of the learning rate"});
  expect("five curves are in the picture", svg.find("curve c4") != std::string::npos);
  if (folder.empty()) return say("start with a folder as argument to keep it");
  std::ofstream(folder + "/09_schedules.svg") << svg;
  say("written: ", folder, "/09_schedules.svg");
}

int main(int argc, char** argv) {
  if (argc > 1) folder = argv[1];
  int result = lesson("Tutorial 9: schedules",
                      {why_decay, why_warm_up, no_state, unknown_end, in_samples, picture});
  question(
      "In the first part, which η minimises the loss after exactly 100 updates if it must be "
      "constant?\n"
      "Try some, then say why the best falling rate starts above it.");
  return result;
}
