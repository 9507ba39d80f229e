#include "train/hf_convert.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include "ops/ops.h"
#include "train/checkpoint_writer.h"
#include "train/hf_family.h"
#include "train/hf_weights.h"
#include "train/run_directory.h"
#include "train/run_state.h"

namespace gradus::train {
namespace {

using nlohmann::json;

// ---- Theirs to ours

// What does not fit, one line for each kind.
class Problems {
 public:
  void missing(const std::string& name) { add(missing_, name); }
  void unexpected(const std::string& name) { add(unexpected_, name); }
  void other_shape(const std::string& text) { shapes_ += "\n  " + text; }
  void check_none(const std::string& directory) const {
    std::string all = shapes_;
    if (!missing_.empty()) all += "\n  missing: " + missing_;
    if (!unexpected_.empty()) all += "\n  unexpected: " + unexpected_;
    check(all.empty(), "the tensors in ", directory, " are not those of its config.json:", all,
          "\n");
  }

 private:
  static void add(std::string& list, const std::string& name) {
    list += (list.empty() ? "" : ", ") + name;
  }
  std::string missing_, unexpected_, shapes_;
};

bool is_buffer(const HfFamily& family, const std::string& name) {
  return std::any_of(family.buffers.begin(), family.buffers.end(),
                     [&](const std::string& end) { return name.ends_with(end); });
}

void check_fit(const HfWeights& weights, const HfFamily& family, const Settings& settings,
               const std::string& directory) {
  std::set<std::string> left;
  for (const auto& item : weights.tensors())
    if (!is_buffer(family, item.first)) left.insert(item.first);
  Problems problems;
  for (const HfParameter& p : family.parameters(settings))
    for (const HfTensor& t : tensors_of(p)) {
      if (!left.erase(t.name)) {
        problems.missing(t.name);
        continue;
      }
      const Shape& shape = weights.at(t.name).entry().shape;
      std::ostringstream text;
      text << t.name << " is " << shape << ", config.json (" << p.keys << ") makes it " << t.shape;
      if (!(shape == t.shape)) problems.other_shape(text.str());
    }
  for (const HfCopy& copy : family.copies(settings)) left.erase(copy.name);
  for (const std::string& name : left) problems.unexpected(name);
  problems.check_none(directory);
}

// A tied output matrix that a file has nevertheless.
void check_copies(const HfWeights& weights, const HfFamily& family, const Settings& settings) {
  for (const auto& [name, of] : family.copies(settings)) {
    if (!weights.tensors().count(name)) continue;
    const auto a = weights.at(name), b = weights.at(of);
    const auto x = a.file->bytes(a.name), y = b.file->bytes(b.name);
    check(a.entry().type == b.entry().type && std::equal(x.begin(), x.end(), y.begin(), y.end()),
          "", a.file->path(), ": ", name, " differs from ", of,
          ", but config.json (tie_word_embeddings) makes them the same");
  }
}

// bf16 where all are, f32 for f32 and for mixtures.
DType common_type(const HfWeights& weights, const HfFamily& family, const Settings& settings) {
  bool all_bf16 = true;
  for (const HfParameter& p : family.parameters(settings))
    for (const HfTensor& t : tensors_of(p)) {
      const auto place = weights.at(t.name);
      const auto dtype = place.entry().dtype;
      check(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16, "",
            place.file->path(), ": ", t.name, " has elements of type ", place.entry().type,
            "; weights are taken from F32, BF16 and F16");
      all_bf16 = all_bf16 && dtype == DType::bf16;
    }
  return all_bf16 ? DType::bf16 : DType::f32;
}

Tensor rows_of(const Tensor& t, int64_t first, int64_t count) {
  return slice(t, 0, first, first + count);
}

Tensor assemble(const HfParameter& p, const HfWeights& weights, DType dtype) {
  const Tensor ours = empty(p.shape, dtype);
  std::map<std::string, Tensor> read;
  for (const HfRows& rows : p.rows) {
    Tensor& theirs = read[rows.name];
    if (!theirs) theirs = weights.tensor(rows.name);
    copy_(rows_of(ours, rows.ours, rows.count),
          rows_of(p.transposed ? transpose(theirs, 0, 1) : theirs, rows.theirs, rows.count));
  }
  return ours;
}

// ---- Ours to theirs

std::vector<std::byte> elements_of(const Tensor& t) {
  std::vector<std::byte> bytes(size_t(t.numel() * size_of(t.dtype())));
  if (!bytes.empty()) std::memcpy(bytes.data(), t.raw(), bytes.size());
  return bytes;
}

Tensor stored(const CheckpointReader& reader, const HfParameter& p, DType dtype) {
  const Tensor ours = empty(p.shape, dtype);
  const WantedBox wanted{p.name, dtype, p.shape, whole_box(p.shape), ours.raw()};
  reader.load(std::span(&wanted, 1), Unexpected::ignore);
  return ours;
}

Tensor disassemble(const HfParameter& p, const HfTensor& wanted, const Tensor& ours) {
  const Tensor theirs = empty(wanted.shape, ours.dtype());
  for (const HfRows& rows : p.rows)
    if (rows.name == wanted.name)
      copy_(rows_of(p.transposed ? transpose(theirs, 0, 1) : theirs, rows.theirs, rows.count),
            rows_of(ours, rows.ours, rows.count));
  return theirs;
}

void write_weights(const std::string& path, const CheckpointReader& reader, const HfFamily& family,
                   const Settings& settings) {
  const DType dtype = dtype_of(settings);
  std::vector<SafetensorsOutput> outputs;
  std::vector<std::pair<HfParameter, HfTensor>> sources;
  for (const HfParameter& p : family.parameters(settings))
    for (const HfTensor& t : tensors_of(p)) {
      outputs.push_back({t.name, dtype, t.shape});
      sources.emplace_back(p, t);
    }
  std::string held;  // q, k and v come from one parameter: it is read once
  Tensor ours;
  write_safetensors(path, outputs, [&](size_t i) {
    const auto& [parameter, tensor] = sources[i];
    if (std::exchange(held, parameter.name) != parameter.name)
      ours = stored(reader, parameter, dtype);
    return elements_of(disassemble(parameter, tensor, ours));
  });
}

json config_json(const HfFamily& family, const Settings& settings) {
  json config = family.config(settings);
  config["model_type"] = family.model_type;
  config["architectures"] = {family.architecture};
  config["dtype"] = config["torch_dtype"] = settings.dtype == "bf16"  ? "bfloat16"
                                            : settings.dtype == "f16" ? "float16"
                                                                      : "float32";
  return config;
}

}  // namespace

std::string import_hf(const std::string& directory, const std::string& run) {
  Settings settings = hf_settings(HfConfig::in(directory));
  const HfFamily& family = hf_family(settings.family);
  const HfWeights weights(directory, family.prefix);
  check_fit(weights, family, settings, directory);
  check_copies(weights, family, settings);
  const DType dtype = common_type(weights, family, settings);
  settings.dtype = dtype == DType::bf16 ? "bf16" : "f32";

  CheckpointWriter writer(new_run(run, ""), 0);
  for (const HfParameter& p : family.parameters(settings)) {
    const Tensor ours = assemble(p, weights, dtype);
    writer.add(p.name, dtype, p.shape, ours.raw());
  }
  return writer.publish({{"settings", to_json(settings)}, {"converted_from", directory}});
}

void export_hf(const std::string& run, const std::string& directory) {
  const CheckpointReader reader(find_checkpoint(run));
  const Settings settings = settings_of(reader);
  const HfFamily& family = hf_family(settings.family);
  const std::string config = directory + "/config.json", model = directory + "/model.safetensors";
  for (const std::string& path : {config, model})
    check(!std::filesystem::exists(path), "", path, " is there already; choose another directory");
  const Disk disk;
  const std::string unfinished = model + kTemporarySuffix;
  disk.make_directory(directory);
  disk.remove_all(unfinished);  // left by a crash
  write_weights(unfinished, reader, family, settings);
  disk.write_file(config, config_json(family, settings).dump(2) + "\n");
  disk.rename(unfinished, model);
}

}  // namespace gradus::train
