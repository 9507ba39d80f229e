// g++ 12 warns of its own AVX-512 intrinsics, which xxhash.h inlines.
#pragma GCC diagnostic ignored "-Wuninitialized"
#include "train/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace gradus::train {

std::string hash_of(const void* data, size_t bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, bytes));
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned char byte : canonical.digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace gradus::train
