// Every op × device × floating type × memory layout. A new op adds nothing here.
//
// Tolerances. f64: a central difference with ε = 1e-6 has a truncation error of ε² f'''/6 ~ 1e-12 and
// a rounding error of u |f| / ε ~ 1e-10 per summand of the loss; 1e-7 leaves room for the larger
// derivatives of the examples. Narrower types: `roundings` unit roundoffs of the largest gradient.
#include "autograd/gradcheck.h"

#include <gtest/gtest.h>

#include <set>

#include "autograd/apply.h"
#include "core/allocator.h"
#include "core/cuda.h"

namespace gradus {
namespace {

struct Case {
  const Gradcheck* check;
  Device device;
  DType dtype;
  Layout layout;
};

const char* name_of(Layout l) {
  return l == Layout::contiguous ? "contiguous" : l == Layout::transposed ? "transposed" : "sliced";
}

std::vector<Case> cases() {
  std::vector<Device> devices{kCpu};
  if (cuda_device_count() > 0) devices.push_back(kCuda);
  std::vector<Case> all;
  for (const Gradcheck* check : Gradcheck::all())
    for (Device device : devices)
      for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
        for (Layout layout : {Layout::contiguous, Layout::transposed, Layout::sliced})
          all.push_back({check, device, dtype, layout});
  return all;
}

std::string describe(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return c.check->op + (c.device.is_cuda() ? "_cuda_" : "_cpu_") + name_of(c.dtype) + "_" +
         name_of(c.layout) + "_" + std::to_string(info.index);
}

void expect_small(const GradcheckResult& result, double tolerance, const Case& c) {
  EXPECT_LE(result.worst, tolerance) << c.check->op << " on " << c.device << ", " << c.dtype << ", "
                                     << name_of(c.layout) << ": " << result.where;
}

class OpGradient : public testing::TestWithParam<Case> {};

TEST_P(OpGradient, MatchesReference) {
  const Case& c = GetParam();
  PoisonAllocations poison;  // an output element that nobody wrote is a NaN
  if (c.dtype == DType::f64) expect_small(gradcheck(c.check->example, c.device, c.layout), 1e-7, c);
  if (c.dtype == DType::f64 && c.check->second_order)
    expect_small(gradgradcheck(c.check->example, c.device, c.layout), 1e-6, c);
  double tolerance = c.check->roundings * roundoff(c.dtype);
  expect_small(compare_with_f64(c.check->example, c.dtype, c.device, c.layout), tolerance, c);
}

INSTANTIATE_TEST_SUITE_P(AllOps, OpGradient, testing::ValuesIn(cases()), describe);

/// Fails when an op has no example. Send and receive take two ranks: tests/parallel/collectives_test.cpp.
TEST(OpGradient, NoOpIsLeftOut) {
  std::set<std::string_view> checked{"send", "receive"};
  for (const Gradcheck* g : Gradcheck::all()) checked.insert(g->op);
  for (std::string_view op : op_names())
    EXPECT_TRUE(checked.count(op) || op.substr(0, 5) == "test_") << op << " has no Gradcheck";
  for (std::string_view op : checked) EXPECT_TRUE(op_names().count(op)) << op << " is no op";
}

/// The contract of second derivatives (design, section 3).
TEST(OpGradient, SecondDerivativesOfTheContractAreChecked) {
  std::set<std::string> second;
  for (const Gradcheck* g : Gradcheck::all())
    if (g->second_order) second.insert(g->op);
  for (const char* op : {"add", "sub", "mul", "div", "pow", "exp", "log", "sqrt", "tanh", "sigmoid", "gelu",
                         "relu", "sum", "mean", "matmul", "softmax", "layer_norm", "reshape", "permute",
                         "slice", "expand", "split", "cat", "gather", "index_select", "embedding"})
    EXPECT_TRUE(second.count(op)) << op;
}

}  // namespace
}  // namespace gradus
