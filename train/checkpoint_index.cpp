#include "train/checkpoint_index.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "train/strict_json.h"

namespace gradus::train {
namespace {

using nlohmann::json;

json to_json(const Shape& shape) { return std::vector<int64_t>(shape.begin(), shape.end()); }

Shape shape_from(const json& sizes) {
  check(sizes.is_array(), "a shape must be a list, got ", sizes.dump());
  Shape shape;
  for (const json& size : sizes) shape.push_back(whole_number(size, "a size"));
  return shape;
}

DType dtype_from(const std::string& name) {
  for (DType t :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8})
    if (name == name_of(t)) return t;
  fail("unknown element type ", name);
}

json to_json(const StoredTensor& tensor) {
  json boxes = json::array();
  for (const StoredBox& b : tensor.boxes)
    boxes.push_back({{"offset", to_json(b.box.offset)},
                     {"shape", to_json(b.box.shape)},
                     {"file", b.file},
                     {"first_byte", b.first_byte},
                     {"bytes", b.bytes},
                     {"xxh128", b.hash}});
  return {{"dtype", name_of(tensor.dtype)}, {"shape", to_json(tensor.shape)}, {"boxes", boxes}};
}

StoredTensor tensor_from(const json& j) {
  StoredTensor tensor{dtype_from(j.at("dtype")), shape_from(j.at("shape")), {}};
  bytes_needed(tensor.shape, size_of(tensor.dtype));  // or there is no such tensor
  for (const json& b : j.at("boxes")) {
    StoredBox box{{shape_from(b.at("offset")), shape_from(b.at("shape"))},
                  b.at("file"),
                  whole_number(b.at("first_byte"), "first_byte"),
                  whole_number(b.at("bytes"), "bytes"),
                  b.at("xxh128")};
    check(box.bytes == bytes_needed(box.box.shape, size_of(tensor.dtype)), "a box ", box.box,
          " of ", tensor.dtype, " cannot have ", box.bytes, " bytes");
    check(box.first_byte <= std::numeric_limits<int64_t>::max() - box.bytes &&
              box.file.find('/') == std::string::npos,
          "a box lies outside its directory: byte ", box.first_byte, " of ", box.file);
    tensor.boxes.push_back(std::move(box));
  }
  return tensor;
}

}  // namespace

void merge(StoredTensors& into, const StoredTensors& other) {
  for (const auto& [name, tensor] : other) {
    const auto [at, is_new] = into.try_emplace(name, tensor);
    if (is_new) continue;
    StoredTensor& mine = at->second;
    check(mine.dtype == tensor.dtype && mine.shape == tensor.shape, "checkpoint: ", name,
          " is written as ", mine.dtype, " ", mine.shape, " and as ", tensor.dtype, " ",
          tensor.shape);
    mine.boxes.insert(mine.boxes.end(), tensor.boxes.begin(), tensor.boxes.end());
  }
}

std::string to_text(const CheckpointIndex& index) {
  json tensors = json::object();
  for (const auto& [name, tensor] : index.tensors) tensors[name] = to_json(tensor);
  const bool scored = index.score && std::isfinite(*index.score);
  return json{{"format", kCheckpointFormat},
              {"step", index.step},
              {"score", scored ? json(*index.score) : json()},
              {"meta", index.meta ? *index.meta : json()},
              {"tensors", tensors}}
             .dump(1) +
         "\n";
}

CheckpointIndex parse_index(const std::string& text, const std::string& path) {
  try {
    const json j = parse_json(text, "it");
    const int64_t format = whole_number(j.at("format"), "format");
    check(format == kCheckpointFormat, "checkpoint format ", format, ", this program reads format ",
          kCheckpointFormat);
    CheckpointIndex index;
    index.step = whole_number(j.at("step"), "step");
    if (!j.at("score").is_null()) index.score = j.at("score").get<double>();
    index.meta = std::make_shared<json>(j.at("meta"));
    for (const auto& [name, tensor] : j.at("tensors").items())
      index.tensors.emplace(name, tensor_from(tensor));
    return index;
  } catch (const json::exception& error) {
    fail("", path, " is not the index of a checkpoint: ", error.what());
  } catch (const Error& error) {
    fail("", path, " is not the index of a checkpoint that this program reads: ", error.what());
  }
}

std::shared_ptr<const json> share(const json& meta) { return std::make_shared<json>(meta); }

}  // namespace gradus::train
