#include "train/token_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/check.h"

namespace gradus::train {
namespace {

constexpr int64_t kHeaderBytes = 256 * sizeof(int32_t);

struct LlmcFormat {
  int32_t magic, version;
  int64_t id_bytes;
  TokenFormat format;
};
constexpr LlmcFormat kLlmcFormats[] = {
    {20240520, 1, 2, TokenFormat::llmc_gpt2},
    {20240801, 7, 4, TokenFormat::llmc_llama3},
};

constexpr const char* kRemedy =
    "; write the file again with llm.c's dev/data/*.py (train.bin, val.bin) or nanoGPT's "
    "data/*/prepare.py";

// llm.c's magic numbers are dates of 2024. A headerless file of GPT-2 ids cannot begin like that:
// the lower half of every such number is above 54,000, the ids end at 50,256.
bool looks_like_llmc_magic(int32_t word) { return word >= 20240101 && word <= 20241231; }

}  // namespace

const char* name_of(TokenFormat format) {
  switch (format) {
    case TokenFormat::text:
      return "text, one token a byte";
    case TokenFormat::nanogpt:
      return "nanoGPT, uint16 without header";
    case TokenFormat::llmc_gpt2:
      return "llm.c, uint16";
    case TokenFormat::llmc_llama3:
      return "llm.c, uint32";
    case TokenFormat::pieces:
      return "text, in pieces of words";
  }
  return "";
}

TokenFile::TokenFile(const std::string& path) : path_(path), file_(path) {
  const auto bytes = int64_t(file_.bytes().size());
  const bool bin = std::filesystem::path(path).extension() == ".bin";
  int32_t first_word = 0;
  if (bytes >= 4) std::memcpy(&first_word, file_.bytes().data(), 4);

  if (looks_like_llmc_magic(first_word)) {
    read_header();
    return;
  }
  format_ = bin ? TokenFormat::nanogpt : TokenFormat::text;
  check(!bin || bytes % 2 == 0, "", path, " has ", bytes,
        " bytes: an odd number cannot be uint16 ids, the last one is cut", kRemedy);
  size_ = bin ? bytes / 2 : bytes;
}

void TokenFile::read_header() {
  const auto bytes = int64_t(file_.bytes().size());
  check(bytes >= kHeaderBytes, "", path_, " has ", bytes, " bytes, less than its header of ",
        kHeaderBytes, kRemedy);
  int32_t header[3];  // magic, version, count
  std::memcpy(header, file_.bytes().data(), sizeof(header));

  const auto* known = std::find_if(std::begin(kLlmcFormats), std::end(kLlmcFormats),
                                   [&](const LlmcFormat& f) { return f.magic == header[0]; });
  check(known != std::end(kLlmcFormats), "", path_, " has magic number ", header[0],
        ", expected 20240520 (uint16 ids) or 20240801 (uint32 ids)", kRemedy);
  check(header[1] == known->version, "", path_, " has version ", header[1], ", expected ",
        known->version, " with magic number ", header[0], kRemedy);
  const int64_t expected = kHeaderBytes + header[2] * known->id_bytes;
  check(header[2] >= 0 && bytes == expected, "", path_, " has ", bytes, " bytes, but its header (",
        header[2], " tokens of ", known->id_bytes, " bytes) says ", expected, kRemedy);

  format_ = known->format;
  start_ = kHeaderBytes;
  size_ = header[2];
}

template <class F>
decltype(auto) TokenFile::with_ids(F&& f) const {
  const std::byte* ids = file_.bytes().data() + start_;
  switch (format_) {
    case TokenFormat::text:
      return f(reinterpret_cast<const uint8_t*>(ids));
    case TokenFormat::llmc_llama3:
      return f(reinterpret_cast<const uint32_t*>(ids));
    default:
      return f(reinterpret_cast<const uint16_t*>(ids));
  }
}

int64_t TokenFile::id(int64_t position) const {
  return with_ids([&](const auto* ids) { return int64_t(ids[position]); });
}

void TokenFile::copy(int64_t first, int64_t count, int32_t* out) const {
  with_ids([&](const auto* ids) {
    std::transform(ids + first, ids + first + count, out, [](auto id) { return int32_t(id); });
  });
}

int64_t TokenFile::find_id_outside(int64_t vocabulary) const {
  return with_ids([&](const auto* ids) {
    const auto* found =
        std::find_if(ids, ids + size_, [&](auto id) { return int64_t(id) >= vocabulary; });
    return found == ids + size_ ? int64_t(-1) : int64_t(found - ids);
  });
}

}  // namespace gradus::train
