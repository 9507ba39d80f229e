#include "tests/fuzz/targets.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "train/checkpoint_index.h"
#include "train/hf_family.h"
#include "train/safetensors.h"
#include "train/schedule_text.h"
#include "train/token_file.h"

namespace gradus::fuzz {
namespace {

using namespace train;

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Throws something else than Error unless it is so.
void require(bool is_so, const char* what) {
  if (!is_so) throw std::logic_error(what);
}

// A file in memory, written anew for each input.
class InputFile {
 public:
  explicit InputFile(const char* ending) {
    const bool memory = ::access("/dev/shm", W_OK) == 0;
    path_ = (memory ? "/dev/shm" : std::filesystem::temp_directory_path().string()) +
            "/gradus_fuzz_" + std::to_string(::getpid()) + ending;
  }
  ~InputFile() { ::unlink(path_.c_str()); }
  InputFile(const InputFile&) = delete;
  const std::string& holding(std::string_view content) const {
    std::ofstream(path_, std::ios::binary).write(content.data(), std::streamsize(content.size()));
    return path_;
  }

 private:
  std::string path_;
};

void walk(const TokenFile& file) {
  if (file.size() == 0) return;
  const int64_t count = std::min<int64_t>(file.size(), 64);
  int32_t ids[64];
  file.copy(0, count, ids);
  file.copy(file.size() - count, count, ids);
  const int64_t outside = file.find_id_outside(300);
  require(outside < file.size(), "an id outside the file");
  require(outside < 0 || file.id(outside) >= 300, "an id that is below the vocabulary");
}

}  // namespace

void safetensors(Bytes bytes) try {
  const SafetensorsHeader header = parse_safetensors(std::as_bytes(bytes), "input");
  for (const auto& [name, entry] : header.tensors) {
    const auto data = std::as_bytes(bytes).subspan(size_t(header.data + entry.begin),
                                                   size_t(entry.end - entry.begin));
    unsigned sum = 0;
    for (const std::byte b : data) sum += unsigned(b);  // every byte is there
    require(sum <= 255 * data.size(), "a sum");
    if (entry.dtype)
      require(entry.shape.numel() * size_of(*entry.dtype) == int64_t(data.size()), "a length");
  }
} catch (const Error&) {
}

void hf_config(Bytes bytes) try {
  const Settings settings = hf_settings(HfConfig(text_of(bytes), "input"));
  const HfFamily& family = hf_family(settings.family);
  const HfConfig again(family.config(settings).dump(), "written");
  if (settings.layers > 4 || settings.heads > 16) return;  // the lists are long then, not different
  for (const HfParameter& p : family.parameters(settings))
    require(!tensors_of(p).empty(), "a parameter made of nothing");
} catch (const Error&) {
}

void checkpoint_index(Bytes bytes) try {
  CheckpointIndex index = parse_index(std::string(text_of(bytes)), "input");
  const CheckpointIndex again = parse_index(to_text(index), "written");
  require(to_text(again) == to_text(index), "an index that reads back differently");
  for (const auto& [name, tensor] : index.tensors) {
    std::vector<Box> boxes;
    for (const StoredBox& stored : tensor.boxes) boxes.push_back(stored.box);
    (void)tiling_fault(tensor.shape, boxes);
  }
  merge(index.tensors, again.tensors);
} catch (const Error&) {
}

void token_file(Bytes bytes) try {
  static const InputFile bin(".bin"), text(".txt");
  if (bytes.empty()) return;
  const InputFile& file = bytes[0] % 2 ? bin : text;
  walk(TokenFile(file.holding(text_of(bytes.subspan(1)))));
} catch (const Error&) {
}

void schedule_text(Bytes bytes) try {
  const sched::Schedule schedule = train::parse_schedule(std::string(text_of(bytes)));
  for (const int64_t n : {int64_t(0), int64_t(1), int64_t(1000), int64_t(1) << 40})
    require(!(schedule(n) < 0), "a negative rate");
} catch (const Error&) {
}

}  // namespace gradus::fuzz

#if defined(GRADUS_FUZZ)  // the name of a target: what `make fuzz` builds
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradus::fuzz::GRADUS_FUZZ({data, size});
  return 0;
}
#endif
