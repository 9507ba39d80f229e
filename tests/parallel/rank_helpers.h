#pragma once
// What tests of several ranks share. Ranks are threads.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/cuda.h"
#include "nn/init.h"
#include "ops/ops.h"
#include "parallel/communicator.h"

namespace gradus::parallel {

/// On a GPU, the one of this rank where there are enough for all; else they share the first.
inline Device device_of(const Communicator& world, Device device) {
  const bool own = device.is_cuda() && cuda_device_count() >= world.size();
  return own ? Device{device.type, int8_t(world.rank())} : device;
}

/// Normal values in f64 that depend on `seed` alone: with equal seeds, equal on all ranks.
inline Tensor random_values(const Shape& shape, uint64_t seed) {
  Generator generator(seed);
  return normal(shape, generator, 0, 1, DType::f64);
}

/// Σ a_i b_i
inline double dot(const Tensor& a, const Tensor& b) {
  return sum(mul(a.detach(), b.detach())).item();
}

/// Σ_r x_r of a number on each rank.
inline double over_ranks(const Communicator& group, double x) {
  return group.all_reduce(full({}, x, DType::f64)).item();
}

/// The largest |a − b| of a row (of the first dimension) relative to the largest |b| of the tensor.
inline double row_error(const Tensor& a, const Tensor& b) {
  Tensor error = a.detach() - b.detach();
  const double size = max(abs(b.detach())).item();
  return max(abs(error)).item() / (size > 0 ? size : 1);
}

/// What this rank has of a whole tensor, in order; nothing of padding.
inline std::vector<double> shard_of(const std::vector<double>& whole, const nn::Parameter& part) {
  const nn::ShardMap map(part.shape(), part.shard);
  std::vector<double> values;
  for (int64_t i = 0; i < part.real_numel(); ++i) values.push_back(whole[size_t(map(i))]);
  return values;
}

/// ‖a − b‖ / ‖b‖, or ‖a‖ where b = 0.
inline double relative_error(const double* a, const double* b, size_t n) {
  double error = 0, size = 0;
  for (size_t i = 0; i < n; ++i) error += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
  return size > 0 ? std::sqrt(error / size) : std::sqrt(error);
}

/// f64, per tensor and per row.
inline void expect_close(const std::vector<double>& a, const std::vector<double>& b, size_t row,
                         double tolerance, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  EXPECT_LE(relative_error(a.data(), b.data(), a.size()), tolerance) << what;
  for (size_t i = 0; i + row <= a.size(); i += row)
    EXPECT_LE(relative_error(&a[i], &b[i], row), tolerance) << what << " row " << i / row;
}

/// Gradients of a serial model by name, as values.
using Gradients = std::map<std::string, std::vector<double>>;
inline Gradients gradients_of(nn::Module& serial) {
  Gradients all;
  for (const auto& [name, p] : serial.named_parameters()) all[name] = p.grad().to_vector();
  return all;
}

/// Every parameter of a model on several ranks has the serial gradient, once those that are partial are
/// summed. `serial` has the same names.
inline void expect_gradients(nn::Module& model, const Gradients& serial, const Communicator& tp,
                             double tolerance, const std::string& what) {
  const auto parameters = model.named_parameters();
  ASSERT_EQ(parameters.size(), serial.size()) << what;
  for (const auto& [name, p] : parameters) {
    ASSERT_TRUE(p.grad()) << what << ": " << name;
    Tensor sum = p.shard.partial_grad ? tp.all_reduce(p.grad()) : p.grad();
    std::vector<double> values = sum.to_vector();
    for (size_t i = size_t(p.real_numel()); i < values.size(); ++i) EXPECT_EQ(values[i], 0) << name;
    values.resize(size_t(p.real_numel()));
    const int64_t row = p.rank() > 1 ? p.numel() / p.size(0) : 1;
    const size_t length = p.rank() > 1 ? size_t(row) : values.size();
    expect_close(values, shard_of(serial.at(name), p), length, tolerance, what + ": " + name);
  }
}

}  // namespace gradus::parallel
