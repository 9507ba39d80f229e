#pragma once
// BERT: an encoder in which every token sees the whole text [Devlin et al. 2019]. It learns to fill in
// masked words (masked language model, MLM) and to tell whether a second segment follows the first
// (next sentence prediction, NSP):
//
//   ids     [CLS] in the [MASK] [SEP] god [MASK] the heaven [SEP] [PAD] [PAD]
//   types     0   0   0    0      0    1    1     1    1      1     0     0
//   mask      1   1   1    1      1    1    1     1    1      1     0     0
//
//   words + positions + types ─▶ norm ─▶ dropout ─▶ block ─▶ … ─▶ block ─▶ h (B, T, C)
//   h at the masked places (M, C) ─▶ dense ─▶ GELU ─▶ norm ─▶ word table, tied, + bias ─▶ (M, V)
//   h at [CLS]             (B, C) ─▶ pooler: dense ─▶ tanh ─▶ NSP head ─▶ (B, 2)
//
// The heads work at the places that are asked for: 85 % of the rows of the widest product are not.
//
// With a TensorParallel of several ranks each rank has a part of the heads, of the MLPs and of the
// vocabulary, and computes the same loss. Where tokens are cut, the rows at the places are fetched from the
// ranks that have them, and the head of the MLM works on M/n of them; the pooler and the NSP head do the same
// work on every rank.
#include "models/bert_block.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/loss.h"
#include "parallel/vocab_parallel.h"

namespace gradus {

/// Texts to read, each [CLS] segment [SEP], or [CLS] segment [SEP] segment [SEP], then padding.
struct BertInputs {
  Tensor ids;    // (B, T)
  Tensor types;  // (B, T): 0 in the first segment, 1 in the second
  Tensor mask;   // (B, T) of u8: 0 at padding; may be undefined where there is none
};

/// What is to be found out about them.
struct BertTargets {
  Tensor places;  // (M): b T + t of each place that is asked for
  Tensor words;   // (M): the id that belongs there
  Tensor
      random;  // (B): 0 where the second segment follows the first, 1 where it was drawn at random
};

struct BertLoss {
  nn::LossSum words, sentences;

  /// The mean over the words that are asked for, plus the mean over the pairs of segments.
  Tensor mean() const { return words.mean() + sentences.mean(); }
};

struct Bert final : nn::Module {
  BertConfig config;
  parallel::TensorParallel tp;
  parallel::VocabEmbedding words;  // (V, C)
  nn::Embedding positions;         // (max_length, C)
  nn::Embedding types;             // (types, C)
  nn::LayerNorm norm;
  nn::Dropout drop;
  std::vector<BertBlock> blocks;
  nn::Linear pooler;  // C → C
  nn::Linear head;    // C → C, of the MLM
  nn::LayerNorm head_norm;
  nn::Parameter head_bias;        // (V)
  nn::Linear next;                // C → 2
  bool recompute_blocks = false;  // keep only the inputs of blocks for backward, and run them twice

  explicit Bert(const BertConfig& config, const parallel::TensorParallel& tp = {});

  /// h (B, T, C), on all ranks. `random` is for dropout, which is on in training (a Generator* will do):
  /// one stream is used, whatever the number of layers. What stands at padding reaches nothing else.
  Tensor operator()(const BertInputs& inputs, Randomness random = {}) const;
  /// h (…, C) → logits of the word (…, V), on all ranks. Where tokens are cut it is not for training, which
  /// goes by loss().
  Tensor word_logits(const Tensor& h) const;
  /// h (B, T, C) → tanh(W h₀ + b) (B, C): the text as one vector.
  Tensor pooled(const Tensor& h) const;
  /// (B, C) → logits (B, 2) of "follows" and "random".
  Tensor next_logits(const Tensor& pooled) const { return next(pooled); }

  /// A word or pair whose target is `ignore_index` does not count.
  BertLoss loss(const BertInputs& inputs, const BertTargets& targets, const Randomness& random = {},
                int64_t ignore_index = -100) const;

  /// In Hugging Face's BertForPreTraining:
  ///   words, positions, types, norm   bert.embeddings.{word,position,token_type}_embeddings, LayerNorm
  ///   blocks.N.attention.qkv          bert.encoder.layer.N.attention.self.{query,key,value}, by head
  ///   blocks.N.attention.out, norm1   …attention.output.{dense,LayerNorm}
  ///   blocks.N.up, down, norm2        …intermediate.dense, output.{dense,LayerNorm}
  ///   pooler                          bert.pooler.dense
  ///   head, head_norm, head_bias      cls.predictions.transform.{dense,LayerNorm}, cls.predictions.bias
  ///   next                            cls.seq_relationship
  void fields(nn::Fields& f) override {
    f("words", words)("positions", positions)("types", types)("norm", norm)("drop", drop);
    f("blocks", blocks)("pooler", pooler);
    f("head", head)("head_norm", head_norm)("head_bias", head_bias)("next", next);
  }

 private:
  /// h (B, T, C), or where tokens are cut this rank's rows of it.
  Tensor encoded(const BertInputs& inputs, Randomness random) const;
  Tensor embedded(const BertInputs& inputs, const TokenRows& rows) const;
  /// h (…, C) → this rank's columns of the logits of the word.
  Tensor own_word_logits(const parallel::TensorParallel& tp, const Tensor& h) const;
  /// The rows of h at places among B·T, and the text as one vector, where h may be rows of it.
  Tensor asked_for(const Tensor& h, const Tensor& places, int64_t tokens) const;
  Tensor pooled_of(const Tensor& h, const BertInputs& inputs) const;
  Tensor run_block(const BertBlock& block, const Tensor& x, const Tensor& mask,
                   const Randomness& random) const;
};

/// Rows `places` (M) of h (B, T, C), counted over both: (M, C).
Tensor rows_at(const Tensor& h, const Tensor& places);

}  // namespace gradus
