#pragma once
// GPT: predicts each next token from the tokens before it.
//
//   ids (B, T) ─▶ token table ─▶ + positions ─▶ block ─▶ … ─▶ block ─▶ norm ─▶ head ─▶ logits (B, T, V)
//
//   Gpt gpt(GptConfig::preset("gpt-tiny"));
//   nn::initialize(gpt, 1);
//   Generator random(2);
//   gpt.loss(ids, targets, &random).backward();
//
// With a TensorParallel of several ranks each rank has a part of the heads, of the MLP and of the
// vocabulary, and computes the same loss; or, under sequence parallelism, of the tokens between them, too.
#include "models/transformer.h"
#include "parallel/vocab_parallel.h"

namespace gradus {

struct Gpt final : nn::Module {
  GptConfig config;
  parallel::TensorParallel tp;
  parallel::VocabEmbedding tokens;  // (V, C)
  nn::Parameter positions;          // (max_length, C); absent with rotary positions
  nn::Dropout drop;
  std::vector<Block> blocks;
  Norm norm;
  nn::Parameter head;             // (V, C); absent when tied to the token table
  bool recompute_blocks = false;  // keep only what enters a block for backward, and run it twice

  explicit Gpt(const GptConfig& config, const parallel::TensorParallel& tp = {});

  /// Logits of the token that follows each of ids (B, T): (B, T, V). `random` is for dropout, which is
  /// on in training (a Generator* will do): one stream is used, whatever the number of layers.
  Tensor operator()(const Tensor& ids, const Randomness& random = {}) const;
  /// Mean cross-entropy in nats per target (B, T): targets[b][t] is what follows ids[b][t].
  Tensor loss(const Tensor& ids, const Tensor& targets, const Randomness& random = {},
              CrossEntropyOptions options = {}) const;
  /// Reads ids (B, T) after what is in the cache, without recording: logits of what comes next (B, V).
  Tensor next_logits(const Tensor& ids, KvCache& cache) const;

  /// The two halves: up to the last norm (B, T, C), or where tokens are cut this rank's rows of it; and from
  /// there, (…, C) → (…, V), on all ranks.
  Tensor hidden(const Tensor& ids, Randomness random = {}, KvCache* cache = nullptr) const;
  Tensor logits(const Tensor& hidden) const;

  void fields(nn::Fields& f) override {
    f("tokens", tokens)("positions", positions)("drop", drop)("blocks", blocks)("norm", norm)(
        "head", head);
  }

 private:
  /// (…, C) → this rank's columns of the logits, of all tokens.
  Tensor own_logits(const Tensor& hidden) const;
  /// The vectors that the first block reads. Where no dropout follows, the first norm adds the positions.
  Residual embedded(const Tensor& ids, const TokenRows& rows, int64_t first_position) const;
  Residual run_block(const Block& block, Residual stream, const Randomness& random,
                     KvCache* cache) const;
};

}  // namespace gradus
