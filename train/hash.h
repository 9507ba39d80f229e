#pragma once
// The hash that guards a checkpoint's bytes.
#include <cstddef>
#include <string>

namespace gradus::train {

/// XXH3, 128 bits, as 32 hexadecimal digits: what `xxh128sum` prints for the same bytes.
std::string hash_of(const void* data, size_t bytes);

}  // namespace gradus::train
