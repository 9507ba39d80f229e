#include "parallel/communicator.h"

#include <algorithm>
#include <cstring>

#include "autograd/node.h"
#include "ops/ops.h"
#include "parallel/call.h"
#include "parallel/group.h"

namespace gradus::parallel {
namespace {

/// Contiguous values of x, without history: what a back end may read.
Tensor values(const Tensor& x, const char* op) {
  check(bool(x), op, " of an undefined tensor");
  const NoGrad no_grad;
  return contiguous(x).detach();
}

/// x, which is about to be written.
const Tensor& target(const Tensor& x, const char* op) {
  check(bool(x), op, " into an undefined tensor");
  check(x.is_contiguous(), op, " into ", x.describe(),
        ", which is not contiguous: what is written must be memory without gaps");
  x.will_write(op);
  return x;
}

Tensor as_row(const Tensor& x) { return x.alias({x.numel()}, {1}, x.offset()); }

Shape with_size(Shape shape, int dim, int64_t size) {
  shape[dim] = size;
  return shape;
}

/// Sizes around an axis: (before, axis, after).
int64_t product(const Shape& shape, int begin, int end) {
  int64_t n = 1;
  for (int i = begin; i < end; ++i) n *= shape[i];
  return n;
}

/// x, cut along `dim` into n parts that follow one another in memory: (n, part).
Tensor part_by_part(const Tensor& x, int dim, int64_t n) {
  const NoGrad no_grad;
  const int64_t before = product(x.shape(), 0, dim), rest = product(x.shape(), dim, x.rank()) / n;
  return contiguous(permute(reshape(x, {before, n, rest}), {1, 0, 2}));
}

/// n parts of `shape` that follow one another, laid side by side along `dim`: the inverse.
Tensor side_by_side(const Tensor& parts, const Shape& shape, int dim, int64_t n) {
  const NoGrad no_grad;
  const int64_t before = product(shape, 0, dim), rest = product(shape, dim, shape.rank());
  return reshape(contiguous(permute(reshape(parts, {n, before, rest}), {1, 0, 2})),
                 with_size(shape, dim, n * shape[dim]));
}

/// The axis meant by `dim`, which divides by the group.
int divisible_axis(const Communicator& group, const Tensor& x, int dim, const char* op) {
  check(bool(x), op, " of an undefined tensor");
  dim = x.shape().dim(dim, op);
  check(x.size(dim) % group.size() == 0, op, ": axis ", dim, " of ", x.describe(),
        " does not divide by the ", group.size(), " ranks of ", group.describe());
  return dim;
}

void check_rank(const Communicator& group, int rank, const char* op, const char* what) {
  check(rank >= 0 && rank < group.size(), op, ": ", what, " is rank ", rank, ", but ",
        group.describe(), " has ", group.size());
}

void check_peer(const Communicator& group, int rank, const char* op, const char* what) {
  check_rank(group, rank, op, what);
  check(rank != group.rank(), op, ": ", what, " is rank ", rank, " of ", group.describe(),
        ", the caller itself");
}

void check_parts(const Communicator& group, const Tensor& all, const Tensor& part, const char* op) {
  check(bool(all) && bool(part), op, ": a tensor is undefined");
  check(all.dtype() == part.dtype() && all.device() == part.device() &&
            all.numel() == part.numel() * group.size(),
        op, ": ", group.size(), " parts like ", part.describe(), " do not make ", all.describe());
}

}  // namespace

int Communicator::rank() const { return group_ ? group_->rank() : 0; }
int Communicator::size() const { return group_ ? group_->size() : 1; }

std::string Communicator::describe() const {
  return group_ ? group_->name() + " of " + ranks_text(group_->world_ranks()) : "a group of one";
}

std::vector<int> Communicator::world_ranks() const {
  return group_ ? group_->world_ranks() : std::vector<int>{0};
}

Tensor Communicator::all_reduce(const Tensor& x, Reduce how) const {
  if (size() == 1) return x;
  const NoGrad no_grad;
  const Tensor y = clone(values(x, "all_reduce"));
  group_->on(y.device()).all_reduce(y, how);
  return y;
}

Tensor Communicator::all_gather(const Tensor& x, int dim) const {
  if (size() == 1) return x;
  const Tensor part = values(x, "all_gather");
  dim = x.shape().dim(dim, "all_gather");
  const Tensor all = empty(with_size(x.shape(), 0, size() * x.size(0)), x.dtype(), x.device());
  group_->on(x.device()).all_gather(all, part);
  return dim == 0 ? all : side_by_side(all, x.shape(), dim, size());
}

Tensor Communicator::reduce_scatter(const Tensor& x, int dim) const {
  if (size() == 1) return x;
  dim = divisible_axis(*this, x, dim, "reduce_scatter");
  const Tensor all = part_by_part(values(x, "reduce_scatter"), dim, size());
  const Tensor part = empty(with_size(x.shape(), dim, x.size(dim) / size()), x.dtype(), x.device());
  group_->on(x.device()).reduce_scatter(part, all);
  return part;
}

Tensor Communicator::broadcast(const Tensor& x, int root) const {
  check_rank(*this, root, "broadcast", "the root");
  if (size() == 1) return x;
  const NoGrad no_grad;
  const Tensor y = clone(values(x, "broadcast"));
  group_->on(y.device()).broadcast(y, root);
  return y;
}

Tensor Communicator::all_to_all(const Tensor& x, int cut, int join) const {
  if (size() == 1) return x;
  cut = divisible_axis(*this, x, cut, "all_to_all");
  join = x.shape().dim(join, "all_to_all");
  const Tensor in = part_by_part(values(x, "all_to_all"), cut, size());
  const Tensor out = empty_like(in);
  group_->on(x.device()).all_to_all(out, in);
  return side_by_side(out, with_size(x.shape(), cut, x.size(cut) / size()), join, size());
}

void Communicator::all_reduce_into(const Tensor& x, Reduce how) const {
  if (size() == 1) return;
  group_->on(target(x, "all_reduce").device()).all_reduce(x, how);
}

void Communicator::broadcast_into(const Tensor& x, int root) const {
  check_rank(*this, root, "broadcast", "the root");
  if (size() == 1) return;
  group_->on(target(x, "broadcast").device()).broadcast(x, root);
}

void Communicator::all_gather_into(const Tensor& all, const Tensor& part) const {
  check_parts(*this, all, part, "all_gather");
  if (size() == 1 && all.raw() == part.raw()) return;
  const Tensor mine = values(part, "all_gather");
  target(all, "all_gather");
  if (size() == 1) return copy_(as_row(all), as_row(mine));
  group_->on(all.device()).all_gather(as_row(all), as_row(mine));
}

void Communicator::reduce_scatter_into(const Tensor& part, const Tensor& all) const {
  check_parts(*this, all, part, "reduce_scatter");
  if (size() == 1 && all.raw() == part.raw()) return;
  const Tensor whole = values(all, "reduce_scatter");
  target(part, "reduce_scatter");
  if (size() == 1) return copy_(as_row(part), as_row(whole));
  group_->on(all.device()).reduce_scatter(as_row(part), as_row(whole));
}

void Communicator::send(const Tensor& x, int to, int tag) const {
  check_peer(*this, to, "send", "the receiver");
  const Tensor message = values(x, "send");
  group_->on(x.device()).send(message, to, tag);
}

void Communicator::receive_into(const Tensor& x, int from, int tag) const {
  check_peer(*this, from, "receive", "the sender");
  group_->on(target(x, "receive").device()).receive(x, from, tag);
}

std::vector<int64_t> Communicator::all_gather_values(const std::vector<int64_t>& mine) const {
  if (size() == 1) return mine;
  const int64_t n = int64_t(mine.size());
  const Tensor part = empty({n}, DType::i64), all = empty({n * size()}, DType::i64);
  std::copy(mine.begin(), mine.end(), part.data<int64_t>());
  group_->all_gather(all, part);
  return {all.data<int64_t>(), all.data<int64_t>() + all.numel()};
}

std::vector<std::string> Communicator::all_gather_text(const std::string& mine) const {
  if (size() == 1) return {mine};
  const std::vector<int64_t> lengths = all_gather_values({int64_t(mine.size())});
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const Tensor part = empty({longest}, DType::u8), all = empty({longest * size()}, DType::u8);
  std::memset(part.raw(), 0, size_t(longest));
  std::copy(mine.begin(), mine.end(), part.data<uint8_t>());
  group_->all_gather(all, part);
  std::vector<std::string> texts;
  for (int k = 0; k < size(); ++k)
    texts.emplace_back(static_cast<const char*>(all.raw()) + k * longest,
                       size_t(lengths[size_t(k)]));
  return texts;
}

void Communicator::barrier() const {
  if (size() > 1) group_->barrier();
}

Communicator Communicator::split(int color, int key, const std::string& name) const {
  return group_ ? Communicator(group_->split(color, key, name)) : Communicator();
}

}  // namespace gradus::parallel
