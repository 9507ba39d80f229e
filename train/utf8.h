#pragma once
#include <cstdint>
#include <string_view>

namespace gradus::train {

/// Bytes of the character that begins with `first`, or 0 where none can.
int utf8_length(uint8_t first);

/// Position of the first byte of what is not UTF-8, or −1 [RFC 3629]:
///
///   0xxxxxxx   110xxxxx 10xxxxxx   1110xxxx 10xxxxxx 10xxxxxx   11110xxx 10xxxxxx 10xxxxxx 10xxxxxx
///
/// in the shortest form only, up to U+10FFFF, without the surrogates U+D800 … U+DFFF.
int64_t find_invalid_utf8(std::string_view text);

}  // namespace gradus::train
