#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>

#include "train/commands.h"
#include "train/progress.h"
#include "train/run_state.h"
#include "train/schedule_text.h"
#include "train/svg_plot.h"
#include "train/text_plot.h"

namespace gradus::train {
namespace {

struct ScheduleRequest {
  std::vector<std::string> expressions;
  Choices choices;  // those of gradus train that say something about rates
  std::string lr_style = "cosine", tail_style = "linear", decay_style = "constant";
  std::optional<double> init_lr, start_weight_decay;
  int64_t tail = 0;  // 0: a fifth of decay-steps
  std::string svg;
  int width = 0, height = 12;
};

constexpr const char* kShared[] = {"model",  "steps",       "lr",          "min-lr",
                                   "warmup", "decay-steps", "weight-decay"};

constexpr auto kRun = "Schedule of a run";  // the group of options that say what a run would do

bool is_shared(const Setting& s) {
  return std::find(std::begin(kShared), std::end(kShared), std::string(s.name)) !=
         std::end(kShared);
}

void add_options(CLI::App& app, ScheduleRequest& r) {
  constexpr auto kPicture = "Picture";
  app.get_formatter()->column_width(30);
  app.add_option("SCHEDULE", r.expressions,
                 "schedules in words, see below; default: that of a run with these options");
  Choices::each_field(
      [&](const Setting& s, auto& choice) {
        using T = typename std::decay_t<decltype(choice)>::value_type;
        if constexpr (!std::is_same_v<T, bool>)
          if (is_shared(s)) app.add_option(std::string("--") + s.name, choice, s.help)->group(kRun);
      },
      r.choices);
  app.add_option("--init-lr", r.init_lr, "rate of update 0 (default: lr / (warmup + 1))")
      ->group(kRun);
  app.add_option("--lr-style", r.lr_style,
                 "constant, linear, cosine, inverse_sqrt or wsd (default: cosine)")
      ->group(kRun);
  app.add_option("--tail", r.tail,
                 "last steps of wsd's decay-steps, in which the rate falls "
                 "(default: a fifth)")
      ->group(kRun);
  app.add_option("--tail-style", r.tail_style,
                 "linear, cosine, exponential or minus_sqrt (default: linear)")
      ->group(kRun);
  app.add_option("--weight-decay-style", r.decay_style,
                 "constant, linear or cosine (default: constant)")
      ->group(kRun);
  app.add_option("--start-weight-decay", r.start_weight_decay,
                 "decay of update 0; weight-decay is that of the last (default: the same)")
      ->group(kRun);
  app.add_option("--svg", r.svg, "write a picture to this file, too")->group(kPicture);
  app.add_option("--width", r.width, "columns (default: the terminal's, else 80)")->group(kPicture);
  app.add_option("--height", r.height, "rows of a plot (default: 12)")->group(kPicture);
  app.footer("Schedules; steps, every and milestones count updates:\n" + schedule_names() +
             "Example:\n  gradus schedule --steps 60000 'warmup(6e-4, 2000, cosine(6e-4, 6e-5, "
             "58000))' --svg lr.svg");
}

// Options that only one of the two ways to name a schedule reads.
void check_no_run_options(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    check(option->get_group() != kRun || option->count() == 0 || option->get_name() == "--steps",
          "", option->get_name(),
          " belongs to the schedule of a run; a schedule in words says "
          "everything itself but --steps");
}

std::vector<Curve> curves_in_words(const ScheduleRequest& r) {
  const int64_t steps = r.choices.steps.value_or(1000);
  std::vector<Curve> curves;
  for (const std::string& text : r.expressions)
    curves.push_back(sample(text, parse_schedule(text), steps));
  return curves;
}

// The schedule counts samples; here an update is one sample.
sched::ParamScheduler scheduler_of(const ScheduleRequest& r, Settings& s) {
  s.batch = 1;
  sched::LearningRate lr = learning_rate(s);
  lr.init = r.init_lr.value_or(lr.init);
  lr.style = sched::parse_style<sched::RateStyle>(r.lr_style);
  lr.tail = r.tail > 0 ? r.tail : s.decay_steps / 5;
  lr.tail_style = sched::parse_style<sched::Tail>(r.tail_style);
  const sched::WeightDecay decay{.start = r.start_weight_decay.value_or(s.weight_decay),
                                 .end = s.weight_decay,
                                 .samples = s.decay_steps,
                                 .style = sched::parse_style<sched::IncrementStyle>(r.decay_style)};
  return {lr, decay};
}

// The learning rate, and the weight decay where it changes.
std::vector<Curve> curves_of_run(const ScheduleRequest& r) {
  Settings s = resolve(r.choices, false);
  const sched::ParamScheduler scheduler = scheduler_of(r, s);
  std::vector<Curve> curves{sample(
      "learning rate, " + r.lr_style, [&](int64_t n) { return scheduler.at(n).lr; }, s.steps)};
  if (r.decay_style != "constant")
    curves.push_back(sample(
        "weight decay, " + r.decay_style, [&](int64_t n) { return scheduler.at(n).weight_decay; },
        s.steps));
  return curves;
}

void write_svg(const std::string& path, const std::vector<Curve>& curves, const char* title) {
  std::ofstream file(path, std::ios::binary);
  file << svg_plot(curves, {.title = title}) << std::flush;
  check(file.good(), "cannot write ", path);
  std::cout << "written: " << path << std::endl;
}

void schedule(const CLI::App& app, const ScheduleRequest& r) {
  const bool in_words = !r.expressions.empty();
  if (in_words) check_no_run_options(app);
  const std::vector<Curve> curves = in_words ? curves_in_words(r) : curves_of_run(r);
  const int terminal = terminal_width(STDOUT_FILENO);
  TextPlot options{.height = r.height};
  options.width = r.width > 0 ? r.width : terminal > 0 ? terminal - 1 : 80;
  for (const Curve& curve : curves) std::cout << text_plot(curve, options) << std::endl;
  if (!r.svg.empty()) write_svg(r.svg, curves, in_words ? "Schedules" : "Schedule of a run");
}

}  // namespace

int schedule_command(int argc, const char* const* argv) {
  ScheduleRequest request;
  CLI::App app("Draws schedules of the learning rate and of weight decay.", "gradus schedule");
  add_options(app, request);
  return run_command(app, argc, argv, [&] { schedule(app, request); });
}

}  // namespace gradus::train
