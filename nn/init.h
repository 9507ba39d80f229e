#pragma once
// Where parameters start. The variance rules keep the size of activations (forward) or of gradients
// (backward) as they pass a layer: y = W x with n inputs has Var y = n Var W Var x, so Var W = 1/n
// keeps it, 2/n where a relu halves it [He et al. 2015], and 2/(n + m) is the compromise with the
// backward, where the m outputs play that part [Glorot & Bengio 2010].
#include "core/random.h"
#include "nn/module.h"

namespace gradus::nn {

namespace init {
Initializer constant(double value);
inline Initializer zeros() { return constant(0); }
inline Initializer ones() { return constant(1); }
Initializer uniform(double low, double high);
Initializer normal(double deviation, double mean = 0);
Initializer xavier_uniform(int64_t in, int64_t out,
                           double gain = 1);  // variance gain² 2/(in + out)
Initializer xavier_normal(int64_t in, int64_t out, double gain = 1);
Initializer kaiming_uniform(int64_t in, double gain = 1.4142135623730951);  // variance gain²/in
Initializer kaiming_normal(int64_t in, double gain = 1.4142135623730951);
}  // namespace init

/// Names the parameters and draws their values. Element i of the whole parameter is number i of the
/// random stream (seed, name): a shard is exactly that slice of what one rank would hold, and a model
/// starts from the same values on every device. Padding stays 0.
void initialize(Module& module, uint64_t seed);

/// The same for one parameter, from the stream given.
void initialize(const Parameter& parameter, const Philox& stream);

}  // namespace gradus::nn
