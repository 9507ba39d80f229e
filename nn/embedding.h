#pragma once
#include "nn/init.h"
#include "ops/ops.h"

namespace gradus::nn {

/// For each id a row of the table: (…) → (…, width). The table starts standard normal.
struct Embedding : Module {
  Parameter weight;  // (count, width)

  Embedding(int64_t count, int64_t width) : Embedding({{count, width}, init::normal(1)}) {}
  explicit Embedding(Parameter table) : weight(std::move(table)) {}
  Tensor operator()(const Tensor& ids) const { return embedding(weight, ids); }
  void fields(Fields& f) override { f("weight", weight); }
};

}  // namespace gradus::nn
