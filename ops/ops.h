#pragma once
// The table of contents of ops/: every op, one line, its formula. Shapes broadcast where two tensors
// meet; dtypes and devices must agree (cast() and to() are written out). A negative dimension counts
// from the end. An op records itself when grad mode is on and an input requires a gradient.
#include <optional>

#include "autograd/tensor.h"
#include "core/index_map.h"
#include "core/random.h"

namespace gradus {

using Dims = SmallVector<int, Shape::kMaxRank>;

// ---- creation (ops/create.cu) ----------------------------------------------------------------
Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = kCpu);
Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = kCpu);
Tensor ones(const Shape& shape, DType dtype = DType::f32, Device device = kCpu);
Tensor tensor(const std::vector<double>& values, const Shape& shape, DType dtype = DType::f32,
              Device device = kCpu);                                   // row-major values
Tensor arange(int64_t n, DType dtype = DType::i64, Device device = kCpu);          // 0, 1, …, n − 1
Tensor uniform(const Shape& shape, Generator& generator, double low = 0, double high = 1,
               DType dtype = DType::f32, Device device = kCpu);        // element i: Philox(seed, stream, i)
Tensor normal(const Shape& shape, Generator& generator, double mean = 0, double deviation = 1,
              DType dtype = DType::f32, Device device = kCpu);
Tensor one_hot(const Tensor& ids, int64_t classes, DType dtype = DType::f32);      // (…) → (…, classes)
void fill_(const Tensor& x, double value);                             // x ← value, in place

// ---- arithmetic (ops/binary.cu) --------------------------------------------------------------
Tensor add(const Tensor& a, const Tensor& b);                          // a + b
Tensor sub(const Tensor& a, const Tensor& b);                          // a − b
Tensor mul(const Tensor& a, const Tensor& b);                          // a ⊙ b
Tensor div(const Tensor& a, const Tensor& b);                          // a / b
Tensor pow(const Tensor& a, const Tensor& b);                          // aᵇ, a > 0
Tensor maximum(const Tensor& a, const Tensor& b);                      // at a tie each side gets dy/2
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, double b);
Tensor mul(const Tensor& a, double b);
Tensor pow(const Tensor& a, double b);
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(const Tensor& a, double b) { return add(a, -b); }
inline Tensor operator-(double a, const Tensor& b) { return add(mul(b, -1), a); }
inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(const Tensor& a, double b) { return mul(a, 1 / b); }
inline Tensor operator/(double a, const Tensor& b) { return mul(pow(b, -1), a); }
inline Tensor operator-(const Tensor& a) { return mul(a, -1); }

// ---- one operand (ops/unary.cu) --------------------------------------------------------------
Tensor neg(const Tensor& x);                                           // −x
Tensor exp(const Tensor& x);                                           // eˣ
Tensor log(const Tensor& x);                                           // ln x
Tensor sqrt(const Tensor& x);                                          // √x
Tensor rsqrt(const Tensor& x);                                         // 1/√x
Tensor abs(const Tensor& x);                                           // |x|, derivative 0 at 0
Tensor clamp(const Tensor& x, double low, double high);                // derivative 1 on [low, high]

// ---- activations (ops/activation.cu, ops/swiglu.cu) -------------------------------------------
enum class GeluKind { erf, tanh };
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);                                       // 1 / (1 + e⁻ˣ)
Tensor relu(const Tensor& x);                                          // max(x, 0), derivative 0 at 0
Tensor silu(const Tensor& x);                                          // x σ(x)
Tensor gelu(const Tensor& x, GeluKind kind = GeluKind::erf);           // x Φ(x)
Tensor swiglu(const Tensor& x);                                        // (…, 2H) = [g, u] → silu(g) ⊙ u (…, H)

// ---- choice (ops/compare.cu) -----------------------------------------------------------------
Tensor equal(const Tensor& a, const Tensor& b);                        // u8, 1 where a = b
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor greater(const Tensor& a, const Tensor& b);
Tensor greater_equal(const Tensor& a, const Tensor& b);
Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b);    // mask ? a : b
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value); // mask ? value : x

// ---- reductions (ops/reduce.cu, ops/extreme.cu); no dims: over all -----------------------------
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
Tensor var(const Tensor& x, const Dims& dims = {}, bool keep_dims = false, double correction = 0);
Tensor max(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);  // k ties get dy/k each
Tensor min(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
Tensor argmax(const Tensor& x, int dim, bool keep_dims = false);       // i64, the lowest index of a tie
Tensor argmin(const Tensor& x, int dim, bool keep_dims = false);
/// Sums x over its broadcast dimensions, to the shape that was broadcast: the backward of broadcasting.
Tensor sum_to(const Tensor& x, const Shape& shape);

// ---- type, place, copies (ops/copy.cpp) ------------------------------------------------------
Tensor cast(const Tensor& x, DType dtype);
Tensor to(const Tensor& x, Device device);
Tensor contiguous(const Tensor& x);                                    // x itself if it already is
Tensor clone(const Tensor& x);                                         // its own storage
void copy_(const Tensor& into, const Tensor& from);                    // in place, casts, crosses devices

// ---- views (ops/shape.cpp): no copy, except reshape of what cannot be viewed -----------------
Tensor reshape(const Tensor& x, Shape shape);                          // one size may be −1
Tensor transpose(const Tensor& x, int dim0, int dim1);
Tensor permute(const Tensor& x, const Dims& dims);
Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end, int64_t step = 1);
Tensor select(const Tensor& x, int dim, int64_t index);
Tensor expand(const Tensor& x, const Shape& shape);
Tensor squeeze(const Tensor& x, int dim);
Tensor unsqueeze(const Tensor& x, int dim);
Tensors split(const Tensor& x, const std::vector<int64_t>& sizes, int dim);
Tensors split(const Tensor& x, int parts, int dim);                    // equal parts
Tensor cat(const Tensors& xs, int dim);
Tensor stack(const Tensors& xs, int dim);

// ---- indexing (ops/index.cpp, ops/embedding.cpp); ids i32 or i64, never negative --------------
Tensor gather(const Tensor& x, int dim, const Tensor& index);          // y[i][j] = x[index[i][j]][j] (dim 0)
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
Tensor index_select(const Tensor& x, int dim, const Tensor& ids);      // rows ids of x along dim
Tensor embedding(const Tensor& table, const Tensor& ids);              // (V, C), (…) → (…, C)

// ---- products (ops/matmul.cpp) ---------------------------------------------------------------
Tensor matmul(const Tensor& a, const Tensor& b);                       // (…, m, k)(…, k, n) → (…, m, n)
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});  // x Wᵀ + b, W (out, in)

// ---- normalisation (ops/softmax.cu, ops/norm.cu, ops/add_norm.cu) ------------------------------
Tensor softmax(const Tensor& x, int dim = -1);                         // e^{x_i} / Σ_j e^{x_j}
Tensor log_softmax(const Tensor& x, int dim = -1);                     // x_i − log Σ_j e^{x_j}
Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon = 1e-5);  // beta may be {}
Tensor rms_norm(const Tensor& x, const Tensor& gamma, double epsilon = 1e-5);
struct AddNormOptions {
  double epsilon = 1e-5;
  double dropout = 0;                // of y + b, as by dropout() with the stream `mask`
  Philox mask{};
  uint64_t first_element = 0;        // which element the first one is of the whole that the mask is of
};
struct AddNorm {
  Tensor sum, normal;
};
/// sum = x + drop(y + b), rounded once, and normal = layer_norm(sum), in one pass. The bias b (C) and beta
/// may be {}. Without dropout y may lack the first dimensions of x: (T, C) is added to each row of (B, T, C).
AddNorm add_layer_norm(const Tensor& x, const Tensor& y, const Tensor& bias, const Tensor& gamma,
                       const Tensor& beta, AddNormOptions options = {});
AddNorm add_rms_norm(const Tensor& x, const Tensor& y, const Tensor& bias, const Tensor& gamma,
                     AddNormOptions options = {});

// ---- regularisation (ops/dropout.cu) ---------------------------------------------------------
Tensor dropout(const Tensor& x, double p, Generator& generator);       // x m / (1 − p), m ~ Bernoulli(1 − p)
/// With the mask of a stream. Element i of x is element elements(i) of the whole that x is a part of.
Tensor dropout(const Tensor& x, double p, const Philox& mask, const IndexMap& elements = {});

// ---- losses (ops/cross_entropy.cu, ops/mse.cu) -------------------------------------------------
enum class Reduction { mean, sum, none };
struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  Reduction reduction = Reduction::mean;
  double scale = 1;                  // of the result: with 1/accumulated steps, say, the gradient is
                                     // written in its final size
};
/// −log softmax(logits)[target], logits (…, C), targets (…) of i32 or i64; in f32 for 16-bit logits.
/// A row whose target is ignore_index adds 0 to the sum and 0 to the count, and its logits get
/// gradient 0; the mean is the sum divided by the count, or 0 if that is 0. Two rows of losses 2 and 4,
/// the second ignored: sum 2, count 1, mean 2.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, CrossEntropyOptions options = {});
/// The same of logits that the caller gives away. If nobody else holds them, their gradient is written
/// over them: at a vocabulary of 50,000 nothing else in a model is as large.
Tensor cross_entropy(Tensor&& logits, const Tensor& targets, CrossEntropyOptions options = {});
/// How many targets are not ignored, as a number of `dtype` on their device.
Tensor count_targets(const Tensor& targets, int64_t ignore_index = -100, DType dtype = DType::f32);
Tensor mse_loss(const Tensor& y, const Tensor& target, Reduction reduction = Reduction::mean);

// ---- transformers (ops/rope.cu, ops/attention.cu, ops/self_attention.cpp) ---------------------------------------------
enum class RopeKind { half, interleaved };
struct RopeOptions {
  double base = 10000;
  RopeKind kind = RopeKind::half;
  int64_t first_position = 0;                                          // of x[…, 0, :]
};
Tensor rope(const Tensor& x, RopeOptions options = {});                // (…, T, d): rotated by position
struct AttentionOptions {
  bool causal = false;               // query i of Tq sees keys j ≤ i + Tk − Tq
  Tensor mask{};                     // broadcasts to (B, H, Tq, Tk): u8 (0 hides) or floating (is added)
  Tensor lengths{};                  // i32 (B): sequence b has keys 0 … lengths[b] − 1; instead of a mask
  double dropout = 0;
  Generator* generator = nullptr;    // needed where dropout > 0: one stream of it is drawn
  IndexMap head_rows{};              // b H + h ↦ which head it is of all samples and heads: its mask
  double scale = 0;                  // 0: 1/√d
};
/// q (B, H, Tq, d), k and v (B, Hkv, Tk, d), H a multiple of Hkv → (B, H, Tq, d).
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options = {});

/// Queries, keys and values as one product leaves them: packed (B, T, G, n + 2, d) holds for each of G
/// groups its n query heads, then their keys, then their values.
struct SelfAttentionOptions : AttentionOptions {
  std::optional<RopeOptions> rope{};  // turns queries and keys
  bool overwrite = false;             // packed may be overwritten: nobody reads it later
  Tensor bias{};                      // (G (n + 2) d), or none: a term of each row of packed that was added
                                      // without history, linear(x, w, bias.detach()): its gradient is
                                      // formed here, in passing
};
Tensor self_attention(const Tensor& packed, SelfAttentionOptions options = {});   // (B, T, G·n·d)
struct UnpackedHeads {
  Tensor q, k, v;                     // (B, G·n, T, d), (B, G, T, d), (B, G, T, d)
};
UnpackedHeads unpack_heads(const Tensor& packed);
Tensor merge_heads(const Tensor& x);  // (B, H, T, d) → (B, T, H·d)

}  // namespace gradus
