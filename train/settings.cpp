#include "train/settings.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/check.h"
#include "train/presets.h"

namespace gradus::train {
namespace {

using nlohmann::json;

// What follows from other choices where nothing else was chosen.
void derive(Settings& s, const Choices& chosen, bool on_gpu) {
  if (!chosen.kv_heads && chosen.heads) s.kv_heads = s.heads;
  if (!chosen.ffn && (chosen.width || chosen.family))  // SwiGLU has three matrices: ⅔ of the width
    s.ffn = s.family == "llama" ? (8 * s.width / 3 + 31) / 32 * 32 : 4 * s.width;
  if (!chosen.vocabulary && !s.text.empty())
    s.vocabulary = s.tokenizer == "bytes" ? 256 : learns_tokenizer(s) ? 2048 : 0;
  if (!chosen.tied) s.tied = s.family != "llama";
  if (!chosen.min_lr) s.min_lr = s.lr / 10;
  if (!chosen.warmup) s.warmup = s.steps / 20;
  if (!chosen.decay_steps) s.decay_steps = s.steps;
  if (!chosen.dtype) s.dtype = on_gpu ? "bf16" : "f32";
  if (!chosen.loss_scale && s.dtype == "f16") s.loss_scale = "dynamic";
  if (!chosen.momentum) s.momentum = s.optimizer == "muon" ? 0.95 : s.optimizer == "sgd" ? 0.9 : 0;
  if (!chosen.eval_every && chosen.steps) s.eval_every = std::max<int64_t>(s.steps / 8, 1);
  if (!chosen.save_every) s.save_every = s.eval_every;
}

void check_word(const char* option, const std::string& word,
                std::initializer_list<const char*> known) {
  std::string all;
  for (const char* k : known) {
    if (word == k) return;
    all += std::string(all.empty() ? "" : ", ") + k;
  }
  fail("", option, " can be ", all, "; got '", word, "'");
}

void check_sizes(const Settings& s) {
  const auto positive = [](const char* option, int64_t value) {
    check(value > 0, "", option, " must be positive, got ", value);
  };
  positive("--layers", s.layers), positive("--width", s.width), positive("--heads", s.heads);
  positive("--kv-heads", s.kv_heads), positive("--ffn", s.ffn), positive("--length", s.length);
  positive("--batch", s.batch);
  positive("--accumulate", s.accumulate), positive("--steps", s.steps);
  positive("--decay-steps", s.decay_steps), positive("--keep", s.keep);
  const auto not_negative = [](const char* option, int64_t value) {
    check(value >= 0, "", option, " must not be negative, got ", value);
  };
  not_negative("--seed", s.seed), not_negative("--warmup", s.warmup);
  not_negative("--vocabulary", s.vocabulary);
  not_negative("--eval-every", s.eval_every), not_negative("--eval-tokens", s.eval_tokens);
  not_negative("--save-every", s.save_every);

  check(s.width % s.heads == 0, "--width ", s.width, " does not divide into --heads ", s.heads);
  check(s.heads % s.kv_heads == 0, "--heads ", s.heads, " is no multiple of --kv-heads ",
        s.kv_heads);
  check(s.family != "llama" || s.width / s.heads % 2 == 0,
        "RoPE turns pairs of channels: a head needs an even number, got --width ", s.width,
        " / --heads ", s.heads, " = ", s.width / s.heads);
  check(s.warmup < s.decay_steps, "--warmup ", s.warmup, " must end before --decay-steps ",
        s.decay_steps);
}

// Multiples of `unit` beside n: "4 or 8".
std::string nearest(int64_t n, int64_t unit) {
  const int64_t below = n / unit * unit;
  return (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + unit);
}

void check_ranks(const Settings& s) {
  check(s.tp > 0 && s.dp > 0, "--tp and --dp must be positive, got ", s.tp, " and ", s.dp);
  const int64_t parts = s.accumulate * s.dp;
  check(s.batch % parts == 0, "--batch ", s.batch, " does not divide into --accumulate ",
        s.accumulate, s.dp > 1 ? " × --dp " : "", s.dp > 1 ? std::to_string(s.dp) : "",
        " equal micro-batches; ", nearest(s.batch, parts),
        " would, or take a smaller --accumulate");
  check(s.heads % s.tp == 0, "--heads ", s.heads, " do not divide by --tp ", s.tp, "; ",
        nearest(s.heads, s.tp), " would");
  check(s.kv_heads % s.tp == 0 || s.tp % s.kv_heads == 0, "--kv-heads ", s.kv_heads, " and --tp ",
        s.tp, ": one must divide by the other");
  check(s.ffn % s.tp == 0, "--ffn ", s.ffn, " does not divide by --tp ", s.tp, "; ",
        nearest(s.ffn, s.tp), " would");
  const int64_t rows = s.batch / parts;
  check(!s.sp || rows * s.length % s.tp == 0, "--sp cuts the ", rows, " × ", s.length,
        " tokens of a micro-batch over --tp ", s.tp, " ranks: they must divide");
  check(s.optimizer != "muon" || (s.tp == 1 && !s.zero),
        "--optimizer muon needs whole matrices: it goes with --dp, not with --tp or --zero");
}

void check_rates(const Settings& s) {
  const auto between = [](const char* option, double value, double low, bool with_low,
                          double high) {
    check((with_low ? value >= low : value > low) && value < high, "", option, " must lie in ",
          with_low ? "[" : "(", low, ", ", high, "), got ", value);
  };
  between("--norm-epsilon", s.norm_epsilon, 0, false, 1);
  between("--rope-base", s.rope_base, 0, false, INFINITY);
  between("--dropout", s.dropout, 0, true, 1), between("--holdout", s.holdout, 0, false, 1);
  between("--lr", s.lr, 0, false, INFINITY), between("--min-lr", s.min_lr, 0, true, INFINITY);
  check(s.min_lr <= s.lr, "--min-lr ", s.min_lr, " is above --lr ", s.lr);
  between("--weight-decay", s.weight_decay, 0, true, INFINITY);
  between("--momentum", s.momentum, 0, true, 1);
  check(s.momentum == 0 || s.optimizer == "sgd" || s.optimizer == "muon", "--momentum ", s.momentum,
        " is for sgd and muon, not for --optimizer ", s.optimizer);
  between("--beta1", s.beta1, 0, true, 1), between("--beta2", s.beta2, 0, true, 1);
  between("--epsilon", s.epsilon, 0, false, INFINITY), between("--clip", s.clip, 0, true, INFINITY);
}

void check_loss_scale(const Settings& s) {
  const std::string& text = s.loss_scale;
  if (text.empty()) return;
  check(s.dtype == "f16", "--loss-scale is for --dtype f16; ", s.dtype, " needs none");
  if (text == "dynamic") return;
  char* end = nullptr;
  const double scale = std::strtod(text.c_str(), &end);
  check(*end == 0 && scale > 0 && scale < 0x1p127,
        "--loss-scale can be dynamic or a number in (0, 2¹²⁷), got '", text, "'");
}

void check_bert(const Settings& s) {
  if (!is_bert(s)) {
    check(s.mask == 0 && !s.whole_words, "--mask and --whole-words are for --family bert, not ",
          s.family);
    return;
  }
  check(s.mask > 0 && s.mask < 1, "--mask must lie in (0, 1), got ", s.mask);
  check(s.tied, "a BERT's word table is its output matrix: --tied=false is for a GPT");
  check(s.kv_heads == s.heads,
        "a BERT's heads do not share keys: --kv-heads is for --family llama");
  check(
      !s.text.empty() && s.tokenizer != "bytes",
      "a BERT reads sentences of a --text in pieces of words: --tokenizer bpe, unigram or a file");
}

template <class T>
std::string text_of(const T& value) {
  std::ostringstream out;
  out.precision(17);
  out << std::boolalpha << value;
  return out.str();
}

}  // namespace

bool learns_tokenizer(const Settings& s) {
  return s.tokenizer == "bpe" || s.tokenizer == "unigram";
}

void settle_ranks(Settings& s, const Choices& choices, const RankChoices& more) {
  if (more.ranks) {
    check(*more.ranks > 0 && s.tp > 0 && *more.ranks % s.tp == 0, "--ranks ", *more.ranks,
          " does not divide into --tp ", s.tp, " × --dp");
    const int64_t dp = *more.ranks / s.tp;
    check(!choices.dp || *choices.dp == dp, "--tp ", s.tp, " × --dp ", choices.dp.value_or(0),
          " are not the ", *more.ranks, " ranks that there are");
    s.dp = dp;
  }
  if (!more.micro_batch) return;
  const int64_t at_once = *more.micro_batch * s.dp;  // windows
  check(at_once > 0 && s.batch % at_once == 0, "--batch ", s.batch,
        " does not divide into --micro-batch ", *more.micro_batch, " × --dp ", s.dp,
        " windows at a time");
  check(!choices.accumulate || *choices.accumulate == s.batch / at_once, "--micro-batch ",
        *more.micro_batch, " × --dp ", s.dp, " of --batch ", s.batch, " makes --accumulate ",
        s.batch / at_once, ", not ", choices.accumulate.value_or(0));
  s.accumulate = s.batch / at_once;
}

Settings resolve(const Choices& choices, bool on_gpu) {
  Settings s = preset(choices.model.value_or(default_preset(on_gpu)));
  Settings::each_field(
      [](const Setting&, auto& value, const auto& choice) { value = choice.value_or(value); }, s,
      choices);
  derive(s, choices, on_gpu);
  return s;
}

Settings resolve_with_model(const Settings& other, const Choices& choices, bool on_gpu) {
  check(!choices.model, "the model is that of --init: leave --model out");
  Choices all = choices;
  const std::vector<std::string> presets = preset_names();
  const bool is_preset = std::find(presets.begin(), presets.end(), other.model) != presets.end();
  std::string different;
  Settings::each_field(
      [&](const Setting& s, const auto& value, auto& choice) {
        const std::string name = s.name;
        const bool fixed = std::string(s.group) == "Model" && name != "model" && name != "dropout";
        // Learned positions end where their table does; rotary ones do not end.
        const bool length = name == "length";
        if (!fixed && !(length && (other.family != "llama" || !choice))) return;
        if (choice && *choice != value)
          different +=
              "\n  --" + name + " " + text_of(*choice) + ", but there it is " + text_of(value);
        choice = value;
      },
      other, all);
  check(different.empty(),
        "the weights of --init belong to another model; leave these out:", different);
  const char* alike = is_bert(other) ? "bert-base" : "gpt2-124m";
  all.model = is_preset ? other.model : alike;  // for how it is trained
  if (!all.dropout) all.dropout = other.dropout;
  Settings s = resolve(all, on_gpu);
  s.model = other.model;
  return s;
}

void validate(const Settings& s) {
  check(s.text.empty() != s.data.empty(), "one of --text FILE and --data FILE.bin is needed",
        s.text.empty() ? "" : ", not both");
  check(s.data.empty() || s.tokenizer == "bytes", "--tokenizer is for a --text; the tokens of ",
        s.data, " are made");
  check_word("--family", s.family, {"gpt2", "llama", "bert"});
  check_bert(s);
  check_word("--dtype", s.dtype, {"f64", "f32", "bf16", "f16"});
  check_word("--optimizer", s.optimizer, {"adamw", "adam", "sgd", "muon"});
  check_loss_scale(s);
  check_word("--non-finite", s.non_finite, {"skip", "stop"});
  check_sizes(s);
  check_ranks(s);
  check_rates(s);
}

json to_json(const Settings& settings) {
  json j = json::object();
  Settings::each_field([&](const Setting& s, const auto& value) { j[s.name] = value; }, settings);
  return j;
}

Settings settings_from(const json& j) {
  Settings settings;
  settings.tp = settings.dp = 1;  // of those that were stored before there could be more
  Settings::each_field(
      [&](const Setting& s, auto& value) {
        if (s.group != std::string(kRanksGroup) || j.contains(s.name)) j.at(s.name).get_to(value);
      },
      settings);
  return settings;
}

Settings resume_with(const Settings& stored, const Choices& choices) {
  Settings settings = stored;
  std::string different;
  Settings::each_field(
      [&](const Setting& s, auto& value, const auto& choice) {
        if (!choice || *choice == value) return;
        if (s.on_resume == OnResume::same)
          different += std::string("\n  --") + s.name + " " + text_of(*choice) +
                       ", but the checkpoint has " + text_of(value);
        value = *choice;
      },
      settings, choices);
  check(different.empty(),
        "a run goes on with the settings it began with; leave these out:", different);
  return settings;
}

}  // namespace gradus::train
