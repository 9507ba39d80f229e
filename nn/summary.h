#pragma once
#include "nn/module.h"

namespace gradus::nn {

/// How many numbers a module has, and how much memory they take.
struct ParameterCount {
  int64_t elements = 0, bytes = 0;
  int64_t trainable_elements = 0, trainable_bytes = 0;
};
ParameterCount count_parameters(Module& module);

/// A table of all parameters, one a line: name, shape, type, elements; and the totals.
std::string summary(Module& module);

}  // namespace gradus::nn
