// The fixtures are models that Hugging Face's transformers made, with the logits that it computed from
// them in f64: tests/fixtures/make_hf.py.
#include "train/hf_convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "models/bert.h"
#include "ops/ops.h"
#include "tests/train/helpers.h"
#include "train/generate.h"
#include "train/hf_family.h"
#include "train/hf_weights.h"
#include "train/run_directory.h"
#include "train/run_state.h"

namespace gradus::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kFixtures = "tests/fixtures/hf/";

// Inputs and outputs of a fixture.
class Expected {
 public:
  explicit Expected(const std::string& name) : file_(kFixtures + name + "/expected.st") {}
  Tensor operator[](const std::string& name) const {
    const SafetensorsEntry& e = file_.tensors().at(name);
    const Tensor t = empty(e.shape, *e.dtype);
    std::memcpy(t.raw(), file_.bytes(name).data(), file_.bytes(name).size());
    return t;
  }

 private:
  SafetensorsFile file_;
};

double largest(const Tensor& x) {
  double m = 0;
  for (double v : x.to_vector()) m = std::max(m, std::abs(v));
  return m;
}
double difference(const Tensor& a, const Tensor& b) {
  return largest(cast(a, DType::f64) - cast(b, DType::f64));
}

// Each of the about 20 sums on the way through two layers has up to 128 terms and rounds by ε √128 or so
// relative to its largest term, ε = 2⁻²⁴: 20 · √128 · 6e-8 ≈ 1.4e-5 of the largest logit. One weight in
// a wrong place changes a logit by about its own size.
constexpr double kRounding = 1.4e-5;

LanguageModel imported(const std::string& run) {
  const CheckpointReader reader(find_checkpoint(run));
  LanguageModel model(settings_of(reader), kCpu);
  model.place();
  load_state(reader, parameters_of(model.module()), Unexpected::error);
  return model;
}

TEST(HfConvert, Gpt2HasTheLogitsOfTransformers) {
  TemporaryDirectory d;
  import_hf(kFixtures + "gpt2", d / "run");
  LanguageModel model = imported(d / "run");
  const Expected expected("gpt2");
  const Tensor logits = expected["logits"];
  EXPECT_LE(difference((*model.gpt)(expected["input_ids"]), logits), kRounding * largest(logits));
  model.gpt->cast(DType::f64);  // the same weights, and now no rounding to hide behind
  EXPECT_LE(difference((*model.gpt)(expected["input_ids"]), logits), 1e-12 * largest(logits));
}

// Grouped heads, SwiGLU, rotary positions, two files. transformers computes angles in f32, in a model
// of f64 as well: no second comparison.
TEST(HfConvert, LlamaHasTheLogitsOfTransformers) {
  TemporaryDirectory d;
  import_hf(kFixtures + "llama", d / "run");
  LanguageModel model = imported(d / "run");
  EXPECT_EQ(model.gpt->config.kv_heads, 2);
  EXPECT_EQ(model.gpt->config.rope_base, 500);
  EXPECT_EQ(model.gpt->config.epsilon, 1e-6);
  const Expected expected("llama");
  const Tensor logits = expected["logits"];
  EXPECT_LE(difference((*model.gpt)(expected["input_ids"]), logits), kRounding * largest(logits));
}

// Two segments, and padding at the end of the second text.
TEST(HfConvert, BertHasTheLogitsOfTransformers) {
  TemporaryDirectory d;
  const CheckpointReader reader(import_hf(kFixtures + "bert", d / "run"));
  Bert bert(bert_config_of(settings_of(reader)));
  nn::name_parameters(bert);
  load_state(reader, parameters_of(bert), Unexpected::error);
  bert.eval();
  const Expected expected("bert");
  const BertInputs inputs{expected["input_ids"], expected["token_type_ids"],
                          cast(expected["attention_mask"], DType::u8)};
  for (const auto& [dtype, tolerance] : {std::pair(DType::f32, kRounding), {DType::f64, 1e-12}}) {
    bert.cast(dtype);
    const Tensor h = bert(inputs), words = expected["logits"], next = expected["next"];
    EXPECT_LE(difference(bert.word_logits(h), words), tolerance * largest(words));
    EXPECT_LE(difference(bert.next_logits(bert.pooled(h)), next), tolerance * largest(words));
  }
}

class HfRoundTrip : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, HfRoundTrip, testing::Values("gpt2", "llama", "bert"));

// P5: the odd vocabulary comes back as it was.
TEST_P(HfRoundTrip, ThereAndBackIsTheSameBitForBit) {
  TemporaryDirectory d;
  const std::string from = kFixtures + GetParam();
  import_hf(from, d / "run");
  export_hf(d / "run", d / "back");
  const HfFamily& family = hf_family(GetParam());
  const HfWeights before(from, family.prefix), after(d / "back", family.prefix);
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const auto& [name, place] : before.tensors()) {
    const auto& other = after.at(name);
    EXPECT_EQ(place.entry().type, other.entry().type) << name;
    EXPECT_EQ(place.entry().shape, other.entry().shape) << name;
    const auto a = place.file->bytes(place.name), b = other.file->bytes(other.name);
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << name;
  }
  const json theirs = json::parse(read_text(from + "/config.json"));
  const json ours = json::parse(read_text(d / "back/config.json"));
  for (const auto& [key, value] : ours.items()) {
    EXPECT_EQ(value, theirs.contains(key) && !theirs[key].is_null() ? theirs[key] : value) << key;
  }
  EXPECT_TRUE(holds(error_of([&] { export_hf(d / "run", d / "back"); }), {"is there already"}));
}

// A run of gradus that Hugging Face has no family for. Nothing is left behind that looks like a model.
TEST(HfConvert, SharedHeadsAreNoGpt2) {
  TemporaryDirectory d;
  Choices c;
  c.model = "gpt-tiny", c.text = "some.txt";
  c.layers = 1, c.width = 16, c.heads = 2, c.kv_heads = 1;
  const Settings settings = resolve(c, false);
  RunState(settings, kCpu).save(d / "run", settings, {}, {});
  const std::string error = error_of([&] { export_hf(d / "run", d / "hf"); });
  EXPECT_TRUE(holds(error, {"2 heads share 1", "llama"})) << error;
  EXPECT_FALSE(fs::exists(d / "hf/model.safetensors"));
  EXPECT_FALSE(fs::exists(d / "hf/config.json"));
}

// ---- Files that are not as they should be

// A copy of a fixture with changes.
class Spoiled {
 public:
  explicit Spoiled(const std::string& name) : name_(name) {
    fs::copy(kFixtures + name, directory_.path(), fs::copy_options::recursive);
  }
  Spoiled& config(const std::string& key, const json& value) {
    json j = json::parse(read_text(directory_ / "config.json"));
    if (value.is_discarded())
      j.erase(key);
    else
      j[key] = value;
    write_text(directory_ / "config.json", j.dump());
    return *this;
  }
  // Writes the weights again, without, with another or with one more tensor.
  Spoiled& without(const std::string& tensor) { return rewrite(tensor, {}); }
  Spoiled& with(const std::string& tensor, const Tensor& value) { return rewrite(tensor, value); }

  std::string error() const {
    return error_of([&] { import_hf(directory_.path(), directory_ / "run"); });
  }
  const TemporaryDirectory& directory() const { return directory_; }

 private:
  Spoiled& rewrite(const std::string& changed, const Tensor& value) {
    std::vector<SafetensorsOutput> outputs;
    std::vector<Tensor> values;
    const auto add = [&](const std::string& name, const Tensor& t) {
      outputs.push_back({name, t.dtype(), t.shape()}), values.push_back(t);
    };
    const HfWeights weights(directory_.path(), "");
    for (const auto& item : weights.tensors())
      if (item.first != changed) add(item.first, weights.tensor(item.first));
    if (value) add(changed, contiguous(value));
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      if (entry.path().filename().string().starts_with("model")) fs::remove(entry.path());
    write_safetensors(directory_ / "model.safetensors", outputs, [&](size_t i) {
      const auto* bytes = static_cast<const std::byte*>(values[i].raw());
      return std::vector<std::byte>(bytes, bytes + values[i].numel() * size_of(values[i].dtype()));
    });
    return *this;
  }

  std::string name_;
  TemporaryDirectory directory_;
};

const json kAbsent = json(json::value_t::discarded);

TEST(HfConvert, AVocabularyThatDiffersNamesTheTensorTheKeyAndBothSides) {
  const std::string text = Spoiled("gpt2").config("vocab_size", 103).error();
  EXPECT_TRUE(holds(text, {"transformer.wte.weight is (101, 32)", "vocab_size", "(103, 32)"}))
      << text;
}

TEST(HfConvert, EveryTensorThatDoesNotFitIsListed) {
  Spoiled spoiled("llama");
  spoiled.without("model.norm.weight").without("model.layers.1.mlp.up_proj.weight");
  spoiled.with("model.layers.0.self_attn.q_proj.bias", zeros({32}));
  spoiled.with("model.layers.0.self_attn.k_proj.weight", zeros({8, 32}));
  const std::string text = spoiled.error();
  EXPECT_TRUE(holds(text, {"missing: model.layers.1.mlp.up_proj.weight, model.norm.weight",
                           "unexpected: model.layers.0.self_attn.q_proj.bias",
                           "model.layers.0.self_attn.k_proj.weight is (8, 32)", "(16, 32)",
                           "num_key_value_heads"}))
      << text;
  EXPECT_FALSE(fs::exists(spoiled.directory() / "run"));  // D6: nothing is made before all is well
}

TEST(HfConvert, WhatAConfigurationAsksForAndGradusHasNotIsAnError) {
  const auto error = [](const char* name, const char* key, const json& value) {
    return Spoiled(name).config(key, value).error();
  };
  EXPECT_TRUE(
      holds(error("gpt2", "model_type", "gptj"), {"config.json", "'gptj'", "gpt2, llama, bert"}));
  EXPECT_TRUE(holds(error("gpt2", "model_type", kAbsent), {"config.json", "no model_type"}));
  EXPECT_TRUE(holds(error("gpt2", "n_head", kAbsent), {"config.json", "no n_head"}));
  EXPECT_TRUE(holds(error("gpt2", "n_head", 5), {"width 32", "5 heads"}));
  EXPECT_TRUE(holds(error("gpt2", "n_layer", -1), {"n_layer", "-1"}));
  EXPECT_TRUE(holds(error("gpt2", "n_layer", 1000000), {"n_layer", "1000000"}));
  EXPECT_TRUE(holds(error("gpt2", "n_embd", "32"), {"n_embd", "\"32\""}));
  EXPECT_TRUE(holds(error("gpt2", "activation_function", "relu"),
                    {"activation_function", "relu", "gelu_new"}));
  EXPECT_TRUE(holds(error("gpt2", "attn_pdrop", 0.5), {"attn_pdrop", "0.5"}));
  EXPECT_TRUE(holds(error("gpt2", "tie_word_embeddings", 1), {"tie_word_embeddings"}));
  EXPECT_TRUE(holds(error("llama", "head_dim", 16), {"head_dim", "16", "8"}));
  EXPECT_TRUE(holds(error("llama", "attention_bias", true), {"attention_bias"}));
  EXPECT_TRUE(holds(error("llama", "rope_parameters", {{"rope_type", "llama3"}, {"factor", 8}}),
                    {"rope_parameters.rope_type", "llama3"}));
  EXPECT_TRUE(holds(error("llama", "rope_scaling", {{"type", "linear"}}), {"rope_scaling.type"}));
  EXPECT_TRUE(holds(error("llama", "rope_parameters", 3), {"rope_parameters"}));
  EXPECT_TRUE(holds(error("bert", "hidden_act", "relu"), {"hidden_act"}));
  EXPECT_TRUE(holds(error("bert", "type_vocab_size", 3), {"type_vocab_size", "3"}));
}

TEST(HfConvert, FilesThatAreMissingOrDamagedAreNamed) {
  EXPECT_TRUE(holds(error_of([] { import_hf("nowhere", "run"); }), {"nowhere/config.json"}));
  Spoiled spoiled("llama");
  const std::string index = spoiled.directory() / "model.safetensors.index.json";
  const std::string first = spoiled.directory() / "model-00001-of-00002.safetensors";
  json j = json::parse(read_text(index));
  j["weight_map"]["lm_head.weight"] = "model-00001-of-00002.safetensors";
  write_text(index, j.dump());
  EXPECT_TRUE(holds(spoiled.error(), {"lm_head.weight", "00001", "it is in", "00002"}))
      << spoiled.error();
  write_text(first, read_text(first).substr(0, 20000));
  EXPECT_TRUE(holds(spoiled.error(), {"model-00001-of-00002.safetensors", "end at byte"}));
  j["weight_map"]["lm_head.weight"] = "../other";
  write_text(index, j.dump());
  EXPECT_TRUE(holds(spoiled.error(), {"lm_head.weight", "../other"}));
  fs::remove(index);
  EXPECT_TRUE(holds(spoiled.error(), {"neither model.safetensors nor", "save_pretrained"}));
}

// ---- Variants of files

TEST(HfConvert, ATiedMatrixMayBeThereButMustBeTheSame) {
  const HfWeights weights(kFixtures + "gpt2", "");
  const Tensor table = weights.tensor("transformer.wte.weight");
  EXPECT_EQ(Spoiled("gpt2").with("lm_head.weight", table).error(), "no error");
  const std::string text = Spoiled("gpt2").with("lm_head.weight", table * 2).error();
  EXPECT_TRUE(
      holds(text, {"lm_head.weight differs from transformer.wte.weight", "tie_word_embeddings"}));
}

TEST(HfConvert, AnUntiedGpt2AndATiedLlamaKeepTheirOutputMatrix) {
  Generator random(3);
  const Tensor own = normal({101, 32}, random);
  Spoiled untied("gpt2");
  EXPECT_EQ(untied.config("tie_word_embeddings", false).with("lm_head.weight", own).error(),
            "no error");
  LanguageModel gpt2 = imported(untied.directory() / "run");
  EXPECT_EQ(difference(gpt2.gpt->head, own), 0);
  export_hf(untied.directory() / "run", untied.directory() / "back");
  EXPECT_EQ(difference(HfWeights(untied.directory() / "back", "").tensor("lm_head.weight"), own),
            0);

  Spoiled tied("llama");
  EXPECT_EQ(tied.config("tie_word_embeddings", true).without("lm_head.weight").error(), "no error");
  LanguageModel llama = imported(tied.directory() / "run");
  EXPECT_TRUE(llama.gpt->config.tied);
  EXPECT_FALSE(llama.gpt->head);
}

// A file of the model without its heads has no prefix, and has buffers; f16 becomes f32, exactly.
TEST(HfConvert, OlderFilesAreRead) {
  TemporaryDirectory d;
  const HfWeights weights(kFixtures + "gpt2", "transformer.");
  std::vector<SafetensorsOutput> outputs{{"h.0.attn.bias", DType::u8, {1, 1, 2, 2}}};
  std::vector<Tensor> values{zeros({1, 1, 2, 2}, DType::u8)};
  for (const auto& item : weights.tensors()) {
    const Tensor half = cast(weights.tensor(item.first), DType::f16);
    outputs.push_back({item.first.substr(strlen("transformer.")), DType::f16, half.shape()});
    values.push_back(half);
  }
  write_safetensors(d / "model.safetensors", outputs, [&](size_t i) {
    const auto* bytes = static_cast<const std::byte*>(values[i].raw());
    return std::vector<std::byte>(bytes, bytes + values[i].numel() * size_of(values[i].dtype()));
  });
  fs::copy(kFixtures + "gpt2/config.json", d / "config.json");
  import_hf(d.path(), d / "run");
  const LanguageModel model = imported(d / "run");
  EXPECT_EQ(model.dtype, DType::f32);
  const Tensor table = cast(weights.tensor("transformer.wte.weight"), DType::f16);
  EXPECT_EQ(difference(model.gpt->tokens.weight, table), 0);
}

// gradus train --init: in the type of the run, whatever that of the weights.
TEST(HfConvert, ARunBeginsWithConvertedWeights) {
  TemporaryDirectory d;
  const CheckpointReader reader(import_hf(kFixtures + "gpt2", d / "run"));
  const Tensor table = HfWeights(kFixtures + "gpt2", "").tensor("transformer.wte.weight");
  for (const char* dtype : {"f32", "bf16"}) {
    Choices choices;
    choices.data = "some.bin", choices.dtype = dtype;
    const Settings settings = resolve_with_model(settings_of(reader), choices, false);
    const RunState state(settings, kCpu, &reader);
    const Tensor weight = state.model.gpt->tokens.weight;
    EXPECT_EQ(weight.dtype(), dtype == std::string("f32") ? DType::f32 : DType::bf16);
    EXPECT_EQ(difference(weight, cast(table, weight.dtype())), 0);
  }
}

TEST(HfConvert, AConvertedModelWrites) {
  TemporaryDirectory d;
  import_hf(kFixtures + "llama", d / "run");
  LanguageModel model = imported(d / "run");
  TextGenerator generator(model, {5, 6, 7}, {.temperature = 0}, 1);
  for (int i = 0; i < 30; ++i) {  // past the context of 24, too
    const int32_t id = generator.next();
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 99);
  }
}

}  // namespace
}  // namespace gradus::train
