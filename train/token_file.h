#pragma once
// One file of token ids, read in place. Four formats, told apart by their first bytes:
//
//   llm.c, GPT-2     256 × int32 header {20240520, version 1, count, 0 …}, then count × uint16
//   llm.c, Llama 3   256 × int32 header {20240801, version 7, count, 0 …}, then count × uint32
//   nanoGPT          no header, uint16 throughout; known by the file's extension, .bin
//   text             anything else: every byte is a token, the vocabulary is 0 … 255
//
// Integers are little-endian.
#include <cstdint>
#include <string>

#include "train/mapped_file.h"

namespace gradus::train {

enum class TokenFormat { text, nanogpt, llmc_gpt2, llmc_llama3, pieces };  // pieces: in no file

const char* name_of(TokenFormat format);

class TokenFile {
 public:
  /// Error when the header has a wrong magic number or version or contradicts the file's length.
  explicit TokenFile(const std::string& path);

  const std::string& path() const { return path_; }
  TokenFormat format() const { return format_; }
  int64_t size() const { return size_; }  // in tokens

  /// Id at `position`, 0 ≤ position < size(). 64 bits: a uint32 id need not fit an int32.
  int64_t id(int64_t position) const;

  /// Writes the ids [first, first + count) to `out`; they must fit an int32 (see Tokens::check_ids).
  void copy(int64_t first, int64_t count, int32_t* out) const;

  /// The first position whose id is ≥ vocabulary, or −1.
  int64_t find_id_outside(int64_t vocabulary) const;

 private:
  template <class F>
  decltype(auto) with_ids(F&& f) const;  // f(pointer to the stored ids, in their type)
  void read_header();

  std::string path_;
  MappedFile file_;
  TokenFormat format_ = TokenFormat::text;
  int64_t start_ = 0;  // byte of the first id
  int64_t size_ = 0;
};

}  // namespace gradus::train
