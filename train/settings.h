#pragma once
// Everything that decides the numbers of a run, as one list. The options of the command line, what a
// checkpoint stores, what a resumed run is compared with and what is printed all come from it: a new
// setting is one member and one line of each_field.
//
//   Settings      each field has a value
//   Choices       each field may have one: what the user chose
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace gradus::train {

/// May a resumed run have another value than the run that it continues?
enum class OnResume { same, may_differ };

/// What is said about a field.
struct Setting {
  const char *name, *group, *help;
  OnResume on_resume = OnResume::same;
  const char* also = nullptr;  // another name of the option
};

inline constexpr const char* kRanksGroup = "Ranks";

template <template <class> class As>
struct SettingsOf {
  As<std::string> model{}, family{};
  As<int64_t> layers{}, width{}, heads{}, kv_heads{}, ffn{}, vocabulary{};
  As<double> dropout{}, norm_epsilon{}, rope_base{};
  As<bool> tied{};
  As<std::string> text{}, data{}, validation{}, tokenizer{};
  As<double> holdout{}, mask{};
  As<bool> whole_words{};
  As<int64_t> length{}, batch{}, accumulate{}, seed{};
  As<int64_t> tp{}, dp{};
  As<bool> sp{}, zero{};
  As<int64_t> steps{}, warmup{}, decay_steps{};
  As<std::string> optimizer{};
  As<double> lr{}, min_lr{}, weight_decay{}, momentum{}, beta1{}, beta2{}, epsilon{}, clip{};
  As<std::string> dtype{}, loss_scale{}, non_finite{};
  As<bool> recompute{};
  As<int64_t> eval_every{}, eval_tokens{}, save_every{}, keep{};

  /// Calls f(Setting, the field of each of `s`…) for each field.
  template <class F, class... S>
  static void each_field(F&& f, S&... s) {
    constexpr auto kModel = "Model", kData = "Data", kTraining = "Training", kRun = "Run",
                   kRanks = kRanksGroup;
    constexpr auto may_differ = OnResume::may_differ;
    f(Setting{"model", kModel, "a preset: sizes, and training settings that suit them"},
      s.model...);
    f(Setting{"family", kModel,
              "gpt2: learned positions, layer norm, GELU; llama: RoPE, RMS norm, SwiGLU; bert: an "
              "encoder that fills in masked words"},
      s.family...);
    f(Setting{"layers", kModel, "blocks"}, s.layers...);
    f(Setting{"width", kModel, "channels of the residual stream"}, s.width...);
    f(Setting{"heads", kModel, "attention heads"}, s.heads...);
    f(Setting{"kv-heads", kModel, "heads of keys and values; fewer than heads: they are shared"},
      s.kv_heads...);
    f(Setting{"ffn", kModel, "inner width of the MLP"}, s.ffn...);
    f(Setting{"vocabulary", kModel,
              "token ids (default: 256 bytes, 2048 pieces, or what the file has, to a multiple of "
              "128)"},
      s.vocabulary...);
    f(Setting{"dropout", kModel, "probability with which dropout drops"}, s.dropout...);
    f(Setting{"norm-epsilon", kModel, "ε of the norms"}, s.norm_epsilon...);
    f(Setting{"rope-base", kModel, "base of the rotary positions"}, s.rope_base...);
    f(Setting{"tied", kModel, "the token table is the output matrix (default: only in gpt2)"},
      s.tied...);

    f(Setting{"text", kData, "a text, cut into tokens by the tokenizer", may_differ}, s.text...);
    f(Setting{"tokenizer", kData,
              "bytes; bpe or unigram: pieces of words, learned from the text; or a file of "
              "SentencePiece"},
      s.tokenizer...);
    f(Setting{"data", kData, "token file (llm.c's or nanoGPT's .bin), or a pattern of several",
              may_differ},
      s.data...);
    f(Setting{"validation", kData, "held-out tokens (default: the last part of the data)",
              may_differ},
      s.validation...);
    f(Setting{"holdout", kData, "fraction of the data that is held out"}, s.holdout...);
    f(Setting{"mask", kData, "bert: fraction of the tokens that are to be filled in"}, s.mask...);
    f(Setting{"whole-words", kData, "bert: mask words, not pieces of words"}, s.whole_words...);
    f(Setting{"length", kData, "tokens in a window: the context"}, s.length...);
    f(Setting{"seed", kData, "of initial weights, order of samples and dropout"}, s.seed...);

    f(Setting{"batch", kTraining, "windows in a step, of all ranks together", OnResume::same,
              "global-batch"},
      s.batch...);
    f(Setting{"accumulate", kTraining, "micro-batches that a step's batch is cut into", may_differ},
      s.accumulate...);
    f(Setting{"steps", kTraining, "steps of the whole run", may_differ}, s.steps...);
    f(Setting{"optimizer", kTraining,
              "adamw; adam: decay through the gradient; sgd; muon: matrices by Muon, the rest by "
              "AdamW"},
      s.optimizer...);
    f(Setting{"lr", kTraining, "highest learning rate"}, s.lr...);
    f(Setting{"min-lr", kTraining, "last learning rate (default: lr / 10)"}, s.min_lr...);
    f(Setting{"warmup", kTraining, "steps up to the highest rate (default: 5 % of them)"},
      s.warmup...);
    f(Setting{"decay-steps", kTraining, "step at which the rate is at its lowest (default: steps)"},
      s.decay_steps...);
    f(Setting{"weight-decay", kTraining, "decay of matrices"}, s.weight_decay...);
    f(Setting{"momentum", kTraining, "of sgd and muon (default: 0.9, muon 0.95)"}, s.momentum...);
    f(Setting{"beta1", kTraining, "AdamW's memory of the gradient"}, s.beta1...);
    f(Setting{"beta2", kTraining, "AdamW's memory of its square"}, s.beta2...);
    f(Setting{"epsilon", kTraining, "AdamW's ε"}, s.epsilon...);
    f(Setting{"clip", kTraining, "longest gradient, 0: any"}, s.clip...);
    f(
        Setting{
            "dtype", kTraining,
            "f64 (for checks), f32, or bf16 or f16 (with f32 masters); default: bf16 on a GPU, f32 "
            "on the CPU"},
        s.dtype...);
    f(Setting{"loss-scale", kTraining, "of f16: dynamic (default), or a number that stays"},
      s.loss_scale...);
    f(Setting{"non-finite", kTraining,
              "after a gradient that is not finite: skip the step, or stop", may_differ},
      s.non_finite...);
    f(Setting{"recompute", kTraining, "keep no activations inside the blocks, compute them again",
              may_differ},
      s.recompute...);

    f(Setting{"tp", kRanks, "ranks that the model is cut over", may_differ}, s.tp...);
    f(Setting{"dp", kRanks, "copies of the model, each with other samples (default: ranks / tp)",
              may_differ},
      s.dp...);
    f(Setting{"sp", kRanks, "cut what is outside the matrices by tokens, over the tp ranks",
              may_differ},
      s.sp...);
    f(Setting{"zero", kRanks, "each dp rank keeps a slice of the optimizer's state (ZeRO-1)",
              may_differ},
      s.zero...);

    f(Setting{"eval-every", kRun, "steps between evaluations, 0: only at the end", may_differ},
      s.eval_every...);
    f(Setting{"eval-tokens", kRun,
              "held-out tokens of an evaluation, 0: all; the last one has all"},
      s.eval_tokens...);
    f(Setting{"save-every", kRun, "steps between checkpoints, 0: only at the end", may_differ},
      s.save_every...);
    f(Setting{"keep", kRun, "newest checkpoints that are kept, beside the best", may_differ},
      s.keep...);
  }
};

template <class T>
using Plain = T;

using Settings = SettingsOf<Plain>;
using Choices = SettingsOf<std::optional>;

/// What the user may say of ranks and batches in other words than the settings have.
struct RankChoices {
  std::optional<int64_t> ranks;  // dp = ranks / tp
  std::optional<int64_t>
      micro_batch;  // windows that a data rank computes at a time: accumulate follows
};

/// Gives dp and accumulate the values that follow from other words. Error when they contradict what
/// else was chosen, or do not divide.
void settle_ranks(Settings& settings, const Choices& choices, const RankChoices& more);

/// The settings of a new run: the preset's, with what was chosen. Error when they make no sense.
Settings resolve(const Choices& choices, bool on_gpu);

inline bool is_bert(const Settings& settings) { return settings.family == "bert"; }

/// Is the tokenizer one that the run learns from its text?
bool learns_tokenizer(const Settings& settings);

/// The settings of a new run that begins with the weights of another one: its model, with what was
/// chosen. Error listing every choice that is another model.
Settings resolve_with_model(const Settings& other, const Choices& choices, bool on_gpu);

/// Error naming the option when a value is out of range or two do not fit.
void validate(const Settings& settings);

nlohmann::json to_json(const Settings& settings);
Settings settings_from(const nlohmann::json& json);

/// The settings of a run that continues: the stored ones, with what was chosen. Error listing every
/// choice that differs from the stored value and must not, with both values.
Settings resume_with(const Settings& stored, const Choices& choices);

}  // namespace gradus::train
