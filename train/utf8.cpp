#include "train/utf8.h"

namespace gradus::train {

int utf8_length(uint8_t first) {
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;  // 10xxxxxx, or a longer form of what fits one byte
  if (first < 0xe0) return 2;
  if (first < 0xf0) return 3;
  return first < 0xf5 ? 4 : 0;
}

namespace {

// What the second byte must be, given the first, for the form to be shortest and the number allowed.
bool allowed(uint8_t first, uint8_t second) {
  switch (first) {
    case 0xe0:
      return second >= 0xa0;
    case 0xed:
      return second < 0xa0;
    case 0xf0:
      return second >= 0x90;
    case 0xf4:
      return second < 0x90;
    default:
      return true;
  }
}

}  // namespace

int64_t find_invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto length = size_t(utf8_length(uint8_t(text[i])));
    if (length == 0 || i + length > text.size()) return int64_t(i);
    for (size_t k = 1; k < length; ++k)
      if ((uint8_t(text[i + k]) & 0xc0) != 0x80) return int64_t(i);
    if (length > 1 && !allowed(uint8_t(text[i]), uint8_t(text[i + 1]))) return int64_t(i);
    i += length;
  }
  return -1;
}

}  // namespace gradus::train
