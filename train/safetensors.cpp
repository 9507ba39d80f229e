#include "train/safetensors.h"

#include <algorithm>
#include <cstring>

#include "train/box.h"
#include "train/disk.h"
#include "train/strict_json.h"

namespace gradus::train {
namespace {

using nlohmann::json;

struct Type {
  const char* name;
  int64_t bytes;
  std::optional<DType> dtype;
};
constexpr Type kTypes[] = {{"F64", 8, DType::f64}, {"F32", 4, DType::f32},
                           {"F16", 2, DType::f16}, {"BF16", 2, DType::bf16},
                           {"I64", 8, DType::i64}, {"I32", 4, DType::i32},
                           {"U8", 1, DType::u8},   {"BOOL", 1, DType::u8},
                           {"I16", 2, {}},         {"I8", 1, {}},
                           {"U16", 2, {}},         {"U32", 4, {}},
                           {"U64", 8, {}},         {"F8_E4M3", 1, {}},
                           {"F8_E5M2", 1, {}}};

const Type& type_called(const std::string& name) {
  std::string known;
  for (const Type& type : kTypes) {
    if (name == type.name) return type;
    known += std::string(known.empty() ? "" : ", ") + type.name;
  }
  fail("dtype is '", name, "', known are ", known);
}

const char* name_in_file(DType dtype) {
  return std::find_if(std::begin(kTypes), std::end(kTypes),
                      [&](const Type& type) { return type.dtype == dtype; })
      ->name;
}

Shape shape_from(const json& j) {
  check(j.is_array() && j.size() <= size_t(Shape::kMaxRank), "shape must be a list of at most ",
        Shape::kMaxRank, " sizes, got ", j.dump());
  Shape shape;
  for (const json& size : j) shape.push_back(whole_number(size, "shape"));
  return shape;
}

SafetensorsEntry entry_from(const json& j) {
  check(j.is_object() && j.contains("dtype") && j.contains("shape") && j.contains("data_offsets"),
        "expected {dtype, shape, data_offsets}, got ", j.dump().substr(0, 80));
  check(j["dtype"].is_string(), "dtype must be a string, got ", j["dtype"].dump());
  const Type& type = type_called(j["dtype"].get<std::string>());
  const json& offsets = j["data_offsets"];
  check(offsets.is_array() && offsets.size() == 2, "data_offsets must be [begin, end], got ",
        offsets.dump());
  SafetensorsEntry e{type.name, type.dtype, shape_from(j["shape"]),
                     whole_number(offsets[0], "data_offsets"),
                     whole_number(offsets[1], "data_offsets")};
  const int64_t bytes = bytes_needed(e.shape, type.bytes);
  check(e.begin <= e.end && e.end - e.begin == bytes, "", type.name, " ", e.shape, " has ", bytes,
        " bytes, but data_offsets are ", offsets.dump());
  return e;
}

// Each byte of the data belongs to exactly one tensor.
void check_order(const std::map<std::string, SafetensorsEntry>& tensors, int64_t bytes) {
  using Item = std::pair<const std::string, SafetensorsEntry>;
  std::vector<const Item*> order;
  for (const Item& item : tensors) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const Item* a, const Item* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  int64_t at = 0;
  std::string before = "the header";
  for (const auto* item : order) {
    check(item->second.begin == at, "tensor '", item->first, "' begins at byte ",
          item->second.begin, item->second.begin < at ? ", inside " : ", leaving a gap after ",
          before, ", which ends at ", at);
    at = item->second.end, before = item->first;
  }
  check(at == bytes, "the tensors end at byte ", at, " of the data, the file has ", bytes);
}

SafetensorsHeader parse(std::span<const std::byte> file) {
  constexpr uint64_t kLongest = 100 << 20;  // as in Hugging Face's reader
  uint64_t length = 0;
  check(file.size() >= sizeof(length), "has ", file.size(), " bytes, no room for a header");
  std::memcpy(&length, file.data(), sizeof(length));
  check(length <= kLongest, "says that its header has ", length, " bytes, more than ", kLongest);
  check(length <= file.size() - sizeof(length), "says that its header has ", length,
        " bytes, but it has only ", file.size() - sizeof(length), " after the length");

  SafetensorsHeader header;
  header.data = int64_t(sizeof(length) + length);
  const json j =
      parse_json({reinterpret_cast<const char*>(file.data()) + sizeof(length), length}, "header");
  check(j.is_object(), "has a header that is no object");
  for (const auto& [name, entry] : j.items()) {
    if (name == "__metadata__") continue;
    try {
      header.tensors.emplace(name, entry_from(entry));
    } catch (const Error& error) {
      fail("tensor '", name, "': ", error.what());
    }
  }
  check_order(header.tensors, int64_t(file.size()) - header.data);
  return header;
}

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  try {
    return parse(file);
  } catch (const Error& error) {
    fail("", path, " is no intact safetensors file: ", error.what());
  }
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), file_(path), header_(parse_safetensors(file_.bytes(), path)) {}

std::span<const std::byte> SafetensorsFile::bytes(const std::string& name) const {
  const auto found = header_.tensors.find(name);
  check(found != header_.tensors.end(), "", path_, " has no tensor '", name, "'");
  const SafetensorsEntry& e = found->second;
  return file_.bytes().subspan(size_t(header_.data + e.begin), size_t(e.end - e.begin));
}

void write_safetensors(const std::string& path, std::span<const SafetensorsOutput> tensors,
                       const std::function<std::vector<std::byte>(size_t i)>& bytes_of) {
  json header = {{"__metadata__", {{"format", "pt"}}}};  // which transformers asks for
  int64_t at = 0;
  for (const auto& [name, dtype, shape] : tensors) {
    const int64_t end = at + bytes_needed(shape, size_of(dtype));
    header[name] = {{"dtype", name_in_file(dtype)},
                    {"shape", std::vector<int64_t>(shape.begin(), shape.end())},
                    {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the elements are aligned
  const uint64_t length = text.size();

  const Disk disk;
  OutputFile file(disk, path);
  file.write(&length, sizeof(length));
  file.write(text.data(), text.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<std::byte> bytes = bytes_of(i);
    const int64_t needed = bytes_needed(tensors[i].shape, size_of(tensors[i].dtype));
    check(int64_t(bytes.size()) == needed, "", path, ": ", tensors[i].name, " needs ", needed,
          " bytes, got ", bytes.size());
    file.write(bytes.data(), bytes.size());
  }
  file.finish();
}

}  // namespace gradus::train
