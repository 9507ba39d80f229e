// Tutorial 11: BERT reads both sides
//
// A GPT (tutorial 7) sees only what stands before a word. BERT sees everything, so there must be
// something left to find out: some words are hidden, and it fills them in; and it tells whether the
// second of two sentences follows the first in the text [Devlin et al. 2019]:
//
//   [CLS] and god called the [MASK] day [SEP] and the darkness he called night [SEP] [PAD] …
//
//   L = mean over hidden words of −log p(word)  +  mean over pairs of −log p(follows or not)
//
//   make tutorials && build/cpu/tutorials/11_bert
#include <algorithm>
#include <sstream>

#include "autograd/node.h"
#include "models/bert.h"
#include "optim/adam.h"
#include "sched/sched.h"
#include "train/machine.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;

const std::vector<std::string> text = {"in the beginning god created the heaven and the earth",
                                       "and the earth was without form and void",
                                       "and the spirit of god moved upon the face of the waters",
                                       "and god said let there be light",
                                       "and there was light",
                                       "and god saw the light that it was good",
                                       "and god called the light day",
                                       "and the darkness he called night",
                                       "and the evening and the morning were the first day"};

// ---- Tokens are words. Their ids follow those of the special tokens.
enum { kPad, kClassify, kSeparate, kMask, kFirstWord };
std::vector<std::string> names = {"[PAD]", "[CLS]", "[SEP]", "[MASK]"};

std::vector<int> ids_of(const std::string& sentence) {
  std::vector<int> ids;
  std::istringstream in(sentence);
  for (std::string word; in >> word;) {
    ids.push_back(int(std::find(names.begin(), names.end(), word) - names.begin()));
    if (ids.back() == int(names.size())) names.push_back(word);
  }
  return ids;
}

// ---- Data: a batch grows by a pair of sentences at a time.
const int64_t T = 28;
Tensor list(const std::vector<double>& v) { return tensor(v, {int64_t(v.size())}, DType::i32); }

struct Pairs {
  std::vector<double> ids, types, mask, places, words, random;
  /// A word is hidden with probability 0.2 (u uniform). 80 % of the hidden ones become [MASK], 10 %
  /// another word, 10 % stay: so that no word can be trusted blindly.
  void add(const std::string& a, const std::string& b, bool is_random, const Tensor& u) {
    int64_t t = 0, type = 0;
    for (int id : ids_of("[CLS] " + a + " [SEP] " + b + " [SEP]")) {
      types.push_back(double(type)), mask.push_back(1);
      if (id == kSeparate) type = 1;
      if (id >= kFirstWord && u.at(t) < 0.2) {
        places.push_back(double(ids.size())), words.push_back(id);
        if (u.at(T + t) < 0.8) id = kMask;
        if (u.at(T + t) > 0.9)
          id = kFirstWord + int(u.at(2 * T + t) * double(names.size() - kFirstWord));
      }
      ids.push_back(id), ++t;
    }
    for (auto* v : {&ids, &types, &mask}) v->resize(v->size() + size_t(T - t), kPad);
    random.push_back(is_random);
  }
  Tensor batch(const std::vector<double>& v, DType dtype = DType::i32) const {
    return tensor(v, {int64_t(v.size()) / T, T}, dtype);
  }
  BertInputs inputs() const { return {batch(ids), batch(types), batch(mask, DType::u8)}; }
  BertTargets targets() const { return {list(places), list(words), list(random)}; }
};

Pairs draw(int count, Generator& g) {
  Pairs pairs;
  while (count-- > 0) {
    const std::vector<double> r = uniform({3}, g).to_vector();
    const auto i = size_t(r[0] * double(text.size() - 1));
    const size_t j = r[1] < 0.5 ? i + 1 : size_t(r[2] * double(text.size()));
    pairs.add(text[i], text[j], j != i + 1, uniform({3, T}, g));
  }
  return pairs;
}

// ---- Training
void learn(Bert& bert) {
  section("Training: fill in, and tell what follows");
  const int64_t steps = 800;
  optim::Adam adam(bert, {.beta2 = 0.98});
  const sched::Schedule lr = sched::warmup(3e-3, 50, sched::linear(3e-3, 0, steps - 50));
  Generator g(2);
  for (int64_t step = 0; step < steps; ++step) {
    const Pairs pairs = draw(16, g);
    const BertLoss loss = bert.loss(pairs.inputs(), pairs.targets());
    loss.mean().backward();
    adam.step(lr(step), {.max_norm = 1});
    adam.zero_grad();
    const double words = loss.words.mean().item(), pair = loss.sentences.mean().item();
    if (step == 0) expect_near("words begin near ln V", words, std::log(names.size()), 0.5);
    if (step % 200 == 199)
      std::printf("  step %4ld   words %.3f   pairs %.3f\n", long(step), words, pair);
  }
}

Pairs pair(const std::string& a, const std::string& b) {
  Pairs pairs;
  pairs.add(a, b, false, ones({3, T}));
  return pairs;
}
std::string filled_in(const Bert& bert, const Pairs& pairs) {
  const auto mask = std::find(pairs.ids.begin(), pairs.ids.end(), double(kMask));
  const Tensor h = bert(pairs.inputs()), place = list({double(mask - pairs.ids.begin())});
  return names[size_t(argmax(bert.word_logits(rows_at(h, place)), 1).item())];
}
bool follows(const Bert& bert, size_t i, size_t j) {
  const Tensor h = bert(pair(text[i], text[j]).inputs());
  return argmax(bert.next_logits(bert.pooled(h)), 1).item() == 0;
}

void a_tiny_bert() {
  for (const std::string& sentence : text) ids_of(sentence);
  train::use_threads(1);  // so small that two threads would mostly wait for each other
  const auto V = int64_t(names.size());
  Bert bert({.layers = 2, .width = 48, .heads = 4, .vocab = V, .max_length = T, .dropout = 0});
  nn::initialize(bert, 1);
  learn(bert);
  NoGrad guard;
  section("What it says");
  expect("and god called the [MASK] day: light",
         filled_in(bert, pair("and god called the [MASK] day", text[7])) == "light");
  expect("and the [MASK] he called night: darkness, told by what comes after it",
         filled_in(bert, pair(text[6], "and the [MASK] he called night")) == "darkness");
  int right = 0;
  for (size_t i = 0; i < 8; ++i) right += follows(bert, i, i + 1) + !follows(bert, i + 1, i);
  expect("it tells the 8 pairs that follow from the same pairs reversed", right == 16);
}

int main() {
  int result = lesson("Tutorial 11: BERT reads both sides", {a_tiny_bert});
  question(
      "Why do 10 % of the hidden words stay? (What is to be filled in when the model is in use?)\n"
      "And why is a GPT no good at \"and the [MASK] he called night\"?");
  return result;
}
