#pragma once
#include <cstdint>

namespace gradus {

/// Multiply-adds of all matrix products that this thread has computed on the CPU since it began: what
/// a formula for the FLOPs of a model can be held against.
int64_t& multiply_adds();

}  // namespace gradus
