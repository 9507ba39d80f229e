#pragma once
// The models of the parity matrix, and the samples of a step that they learn from.
#include <map>
#include <memory>
#include <string>

#include "core/random.h"
#include "models/bert.h"
#include "models/gpt.h"

namespace gradus::parallel::parity {

inline constexpr int64_t kSamples = 16;  // of a step: over data ranks and micro-batches
inline constexpr int64_t kVocab = 97;    // prime: the last part of a table has padding
inline constexpr double kSmoothing = 0.1;

/// Which targets there are. With two data ranks and two micro-batches, data rank 1 has samples 4 … 7 and
/// 12 … 15: none or one of them has a target, or no sample has.
enum class Targets { uneven, one_on_rank_1, none_on_rank_1, nowhere };

/// How many targets sample j has, of 8 places.
inline int64_t targets_of(Targets kind, int64_t j) {
  if (kind == Targets::nowhere) return 0;
  if (kind != Targets::uneven && j % 8 >= 4) return kind == Targets::one_on_rank_1 && j == 13;
  return 5 * j % 9;  // 0 5 1 6 2 7 3 8 4 0 …
}

/// Some of the samples of step `step`.
struct Samples {
  Targets kind = Targets::uneven;
  int64_t step = 0, first = 0, count = kSamples;
  int64_t length = 8;  // tokens of one
  Device device = kCpu;

  /// A number in [0, limit) of each token; `what` tells ids from words.
  template <class F>
  Tensor tokens(F value, DType dtype = DType::i32) const {
    std::vector<double> values;
    for (int64_t j = first; j < first + count; ++j)
      for (int64_t t = 0; t < length; ++t) values.push_back(double(value(j, t)));
    return to(tensor(values, {count, length}, dtype), device);
  }
  int64_t draw(int64_t what, int64_t j, int64_t t, int64_t limit) const {
    return int64_t(mix(uint64_t(((what * 64 + step) * 64 + j) * 1024 + t)) % uint64_t(limit));
  }
  Tensor ids() const {
    return tokens([&](int64_t j, int64_t t) { return draw(0, j, t, kVocab); });
  }
  bool is_asked(int64_t j, int64_t t) const { return (3 * t + j) % 8 < targets_of(kind, j); }
  int64_t word(int64_t j, int64_t t) const { return is_asked(j, t) ? draw(1, j, t, kVocab) : -100; }
  /// Whether a text follows its first half; −100 where nobody asks.
  int64_t pair(int64_t j) const { return targets_of(kind, j) ? draw(2, j, 0, 2) : -100; }
};

/// How many targets there are, and pairs of segments that count.
struct Counts {
  int64_t words = 0, pairs = 0;
};
inline Counts counts_of(const Samples& s) {
  Counts n;
  for (int64_t j = s.first; j < s.first + s.count; ++j) {
    n.pairs += s.pair(j) >= 0;
    for (int64_t t = 0; t < s.length; ++t) n.words += s.is_asked(j, t);
  }
  return n;
}

/// A model with its loss.
struct Model {
  std::unique_ptr<nn::Module> module;
  /// What samples add to the loss, if there are so many targets in the whole step.
  std::function<Tensor(const Samples&, const Counts&, const Randomness&)> share;
  /// The loss of all samples of a step at once: the mean over the targets.
  std::function<Tensor(const Samples&, const Randomness&)> mean;
  std::function<void(bool)> recompute_blocks;
};

inline Tensor loss_of(const Gpt& gpt, const Samples& s, const Randomness& random,
                      CrossEntropyOptions options) {
  options.label_smoothing = kSmoothing;
  const Tensor targets = s.tokens([&](int64_t j, int64_t t) { return s.word(j, t); });
  return gpt.loss(s.ids(), targets, random, options);
}

inline BertLoss loss_of(const Bert& bert, const Samples& s, const Randomness& random) {
  const BertInputs inputs{
      s.ids(), s.tokens([&](int64_t, int64_t t) { return t > s.length / 2; }),
      s.tokens([&](int64_t j, int64_t t) { return t < s.length - j % 3; }, DType::u8)};
  std::vector<double> places, words, pairs;
  for (int64_t j = s.first; j < s.first + s.count; ++j) {
    pairs.push_back(double(s.pair(j)));
    for (int64_t t = 0; t < s.length; ++t)
      if (s.is_asked(j, t)) {
        places.push_back(double((j - s.first) * s.length + t));
        words.push_back(double(s.word(j, t)));
      }
  }
  const auto of = [&](const std::vector<double>& values, DType dtype) {
    return to(tensor(values, {int64_t(values.size())}, dtype), s.device);
  };
  return bert.loss(inputs, {of(places, DType::i64), of(words, DType::i32), of(pairs, DType::i32)},
                   random);
}

inline double inverse(int64_t count) { return 1 / double(std::max<int64_t>(count, 1)); }

inline Model make_model(const GptConfig& config, const TensorParallel& tp) {
  auto gpt = std::make_unique<Gpt>(config, tp);
  Gpt* g = gpt.get();
  return {std::move(gpt),
          [g](const Samples& s, const Counts& all, const Randomness& random) {
            return loss_of(*g, s, random,
                           {.reduction = Reduction::sum, .scale = inverse(all.words)});
          },
          [g](const Samples& s, const Randomness& random) { return loss_of(*g, s, random, {}); },
          [g](bool on) { g->recompute_blocks = on; }};
}

inline Model make_model(const BertConfig& config, const TensorParallel& tp) {
  auto bert = std::make_unique<Bert>(config, tp);
  Bert* b = bert.get();
  return {std::move(bert),
          [b](const Samples& s, const Counts& all, const Randomness& random) {
            const BertLoss loss = loss_of(*b, s, random);
            return loss.words.sum * inverse(all.words) + loss.sentences.sum * inverse(all.pairs);
          },
          [b](const Samples& s, const Randomness& random) { return loss_of(*b, s, random).mean(); },
          [b](bool on) { b->recompute_blocks = on; }};
}

/// A model by name, in one of two sizes: "wide" ones have heads of 64, as kernels on GPUs like them.
struct Family {
  const char* name;
  bool is_wide = false;
  double deviation = 0.3;  // of the values at the start

  int64_t length() const { return is_wide ? 32 : 8; }
  int64_t layers() const { return 2; }
  Model make(const TensorParallel& tp) const;
  /// How many gradients are 0 in mathematics and ± 1e-17, or by chance 0, in numbers: those of the biases
  /// of keys, since a softmax does not change when all of a row are shifted.
  int64_t noise() const;
  bool has_key_bias() const { return std::string(name).find("llama") == std::string::npos; }
  int64_t width() const { return is_wide ? 128 : 16; }
};

inline GptConfig gpt_config(const Family& family) {
  const std::string name = family.name;
  GptConfig c{.layers = family.layers(),
              .width = family.width(),
              .heads = family.is_wide ? 2 : 4,
              .vocab = kVocab,
              .max_length = family.length() + 1,  // the last position is never used
              .dropout = 0.2};
  c.tied = name.find("untied") == std::string::npos;
  if (family.has_key_bias()) return c;
  c.kv_heads = c.heads / 2, c.ffn = family.is_wide ? 192 : 24;
  c.norm = NormKind::rms, c.position = PositionKind::rope, c.activation = Activation::swiglu;
  c.bias = false;
  return c;
}

inline BertConfig bert_config(const Family& family) {
  return {.layers = family.layers(),
          .width = family.width(),
          .heads = family.is_wide ? 2 : 4,
          .ffn = 2 * family.width(),
          .vocab = kVocab,
          .max_length = family.length() + 1,
          .dropout = 0.2};
}

inline Model Family::make(const TensorParallel& tp) const {
  if (std::string(name) == "bert") return make_model(bert_config(*this), tp);
  return make_model(gpt_config(*this), tp);
}
inline int64_t Family::noise() const { return has_key_bias() ? layers() * width() : 0; }

/// Values away from the usual start, where biases are 0 and gradients small. Drawn in the type `drawn`.
inline void start(nn::Module& model, double deviation, DType drawn, DType dtype, Device device) {
  model.cast(drawn);
  nn::name_parameters(model);
  for (nn::Parameter p : model.parameters()) {
    p.init = nn::init::normal(deviation, p.rank() == 1 ? 0.8 : 0);
    nn::initialize(p, Philox::at(5, fnv1a(p.name().c_str())));
  }
  model.to(device);
  model.cast(dtype);
}

}  // namespace gradus::parallel::parity
