// Tutorial 7: a tiny GPT
//
// A language model gives each possible next token a probability, from the tokens before it:
//
//   L = mean over t of  −log p(token t+1 | tokens 1 … t)      in nats; ln V if it knows nothing of V tokens
//
// GPT computes p for all t at once: a vector for each token and each place, then blocks in which tokens
// first look at one another (attention, tutorial 6), then think by themselves (an MLP, tutorial 3).
//
//   ids (B, T) ─▶ tokens + positions ─▶ block ─▶ block ─▶ norm ─▶ head ─▶ logits (B, T, V)
//
//   block     x ─┬─▶ norm ─▶ attention ─▶ + ─┬─▶ norm ─▶ MLP ─▶ + ─▶
//                └─────────────────────────┘ └────────────────┘
//
//   make tutorials && build/cpu/tutorials/07_gpt
#include <set>

#include "autograd/node.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/summary.h"
#include "optim/adam.h"
#include "sched/sched.h"
#include "train/machine.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;

const std::string text =
    "In the beginning God created the heaven and the earth. And the earth was without form, and "
    "void; and darkness was upon the face of the deep. And the Spirit of God moved upon the face "
    "of the waters. And God said, Let there be light: and there was light. And God saw the "
    "light, that it was good: and God divided the light from the darkness. And God called the "
    "light Day, and the darkness he called Night. And the evening and the morning were the first "
    "day.";

// ---- Data: a token is a letter; its id is the place of the letter among those that occur.
std::string letters() {
  std::set<char> all(text.begin(), text.end());
  return {all.begin(), all.end()};
}
const std::string alphabet = letters();
const int64_t V = int64_t(alphabet.size()), B = 8, T = 32, C = 48, H = 4;

/// (number of starts, T): the T letters from each of `starts` on.
Tensor windows(const std::string& from, const std::vector<int64_t>& starts) {
  std::vector<double> ids;
  for (int64_t start : starts)
    for (int64_t t = 0; t < T; ++t) ids.push_back(double(alphabet.find(from[size_t(start + t)])));
  return tensor(ids, {int64_t(starts.size()), T}, DType::i64);
}

// ---- Model
struct Block final : nn::Module {
  nn::LayerNorm norm1{C}, norm2{C};
  nn::Linear qkv{C, 3 * C}, out{C, C}, up{C, 4 * C}, down{4 * C, C};

  Tensor look(const Tensor& x) const {  // (b, T, C) → (b, T, C)
    int64_t b = x.size(0);
    Tensor all = permute(reshape(qkv(x), {b, T, 3, H, C / H}), {2, 0, 3, 1, 4});
    Tensor q = select(all, 0, 0), k = select(all, 0, 1), v = select(all, 0, 2);  // (b, H, T, C/H)
    Tensor y = attention(q, k, v, {.causal = true});
    return out(reshape(transpose(y, 1, 2), {b, T, C}));
  }
  Tensor think(const Tensor& x) const { return down(gelu(up(x))); }
  Tensor operator()(Tensor x) const {
    x = x + look(norm1(x));
    return x + think(norm2(x));
  }
  void fields(nn::Fields& f) override {
    f("norm1", norm1)("qkv", qkv)("out", out)("norm2", norm2)("up", up)("down", down);
  }
};
struct TinyGpt final : nn::Module {
  nn::Embedding tokens{V, C}, positions{T, C};
  Block first, second;
  nn::LayerNorm norm{C};
  nn::Linear head{C, V};

  Tensor operator()(const Tensor& ids) const {  // (b, T) → (b, T, V)
    Tensor x = tokens(ids) + positions(arange(T));
    return head(norm(second(first(x))));
  }
  void fields(nn::Fields& f) override {
    f("tokens", tokens)("positions", positions)("first", first)("second", second);
    f("norm", norm)("head", head);
  }
};

/// Mean of −log p of the letter that follows each letter of the windows.
Tensor loss_of(const TinyGpt& gpt, const std::vector<int64_t>& starts) {
  std::vector<int64_t> next;
  for (int64_t s : starts) next.push_back(s + 1);
  Tensor logits = reshape(gpt(windows(text, starts)), {-1, V});
  return cross_entropy(logits, reshape(windows(text, next), {-1}));
}

// ---- Training
std::vector<int64_t> random_starts(Generator& random) {
  std::vector<double> places = uniform({B}, random, 0, double(text.size()) - T - 1).to_vector();
  return {places.begin(), places.end()};
}

void learn(TinyGpt& gpt) {
  section("Training: forward, backward, step");
  const int64_t steps = 600;
  optim::Adam adam(gpt);
  sched::Schedule lr = sched::warmup(4e-3, 20, sched::cosine(4e-3, 4e-4, steps - 20));
  Generator random(2);
  double first = 0, last = 0;
  for (int64_t step = 0; step <= steps; ++step) {
    Tensor loss = loss_of(gpt, random_starts(random));
    loss.backward();
    adam.step(lr(step), {.max_norm = 1});
    adam.zero_grad();
    last = loss.item();
    if (step == 0) first = last;
    if (step % 100 == 0) std::printf("  step %3ld   loss %.3f nats a letter\n", long(step), last);
  }
  expect_near("it began near ln V, knowing nothing", first, std::log(V), 0.6);
  expect("the loss fell below 0.3: it has learned the text by heart", last < 0.3);
}

/// The likeliest next letter, again and again. `s` is at least one window long.
std::string continued(const TinyGpt& gpt, std::string s, int letters) {
  NoGrad guard;
  while (letters-- > 0) {
    Tensor logits = gpt(windows(s, {int64_t(s.size()) - T}));  // (1, T, V); the last row is wanted
    s += alphabet[size_t(argmax(select(reshape(logits, {T, V}), 0, T - 1), 0).item())];
  }
  return s;
}

void a_tiny_gpt() {
  section("Model");
  train::use_threads(1);  // so small that two threads would mostly wait for each other
  TinyGpt gpt;
  nn::initialize(gpt, 1);
  std::cout << nn::summary(gpt);
  learn(gpt);
  section("What it says");
  std::string s = continued(gpt, text.substr(0, T), 40);
  say(s);
  expect("it continues the first line as it was written", s == text.substr(0, T + 40));
}

int main() {
  int result = lesson("Tutorial 7: a tiny GPT", {a_tiny_gpt});
  question(
      "This one knows its text by heart and nothing else. How would you notice that from a loss?\n"
      "And why can the loss not fall to 0 here?  (What does the first letter of a window know?)");
  return result;
}
