// Collectives as ops. With the values of all n ranks stacked into one vector, each is a matrix of blocks,
// and its backward is the transpose of that matrix:
//
//   copy_to          x ↦ (x, x, …, x)           the transpose sums the n blocks
//   scatter_to       x ↦ (part 0, part 1, …)    the transpose lays them side by side
//   reduce_scatter   part r of Σ_k x_k          sums, then cuts; the transpose gathers, then copies
//
// What is the same on all ranks is one vector, however many hold it: copy_to takes one x, and its dx, a
// sum that all ranks have, is one dx.
#include "parallel/collectives.h"

#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/ops.h"

namespace gradus::parallel {
namespace {

/// Part `rank()` of x, which all ranks have.
Tensor own_part(const Communicator& group, const Tensor& x, int dim) {
  const int64_t n = x.size(dim) / group.size(), first = n * group.rank();
  return contiguous(slice(x, dim, first, first + n));
}

struct CopyTo {
  static constexpr auto name = "copy_to";
  static constexpr bool recordable = true;
  Communicator group{};
  Tensor forward(const Tensor& x) { return x; }
  Tensor backward(const Tensor& dy) { return reduce_from(group, dy); }
};

struct ReduceFrom {
  static constexpr auto name = "reduce_from";
  static constexpr bool recordable = true;
  Communicator group{};
  Tensor forward(const Tensor& x) { return group.all_reduce(x); }
  Tensor backward(const Tensor& dy) { return copy_to(group, dy); }
};

struct ScatterTo {
  static constexpr auto name = "scatter_to";
  static constexpr bool recordable = true;
  Communicator group{};
  int dim = 0;
  Tensor forward(const Tensor& x) { return own_part(group, x, dim); }
  Tensor backward(const Tensor& dy) { return gather_from(group, dy, dim, Consumer::replicated); }
};

struct GatherFrom {
  static constexpr auto name = "gather_from";
  static constexpr bool recordable = true;
  Communicator group{};
  int dim = 0;
  Consumer consumer = Consumer::replicated;
  Tensor forward(const Tensor& x) { return group.all_gather(x, dim); }
  Tensor backward(const Tensor& dy) {
    const bool partial = consumer == Consumer::split;
    return partial ? reduce_scatter(group, dy, dim) : scatter_to(group, dy, dim);
  }
};

struct ReduceScatter {
  static constexpr auto name = "reduce_scatter";
  static constexpr bool recordable = true;
  Communicator group{};
  int dim = 0;
  Tensor forward(const Tensor& x) { return group.reduce_scatter(x, dim); }
  Tensor backward(const Tensor& dy) { return gather_from(group, dy, dim, Consumer::split); }
};

struct AllToAll {
  static constexpr auto name = "all_to_all";
  static constexpr bool recordable = true;
  Communicator group{};
  int cut = 0, join = 0;
  Tensor forward(const Tensor& x) { return group.all_to_all(x, cut, join); }
  Tensor backward(const Tensor& dy) { return all_to_all(group, dy, join, cut); }
};

/// Σ_k x_k at the root, 0 elsewhere: what broadcast needs for its backward.
struct ReduceTo {
  static constexpr auto name = "reduce_to";
  static constexpr bool recordable = true;
  Communicator group{};
  int root = 0;
  Tensor forward(const Tensor& x) {
    Tensor sum = group.all_reduce(x);
    return group.rank() == root ? sum : zeros(x.shape(), x.dtype(), x.device());
  }
  Tensor backward(const Tensor& dy) { return broadcast(group, dy, root); }
};

struct Broadcast {
  static constexpr auto name = "broadcast";
  static constexpr bool recordable = true;
  Communicator group{};
  int root = 0;
  Tensor forward(const Tensor& x) { return group.broadcast(x, root); }
  Tensor backward(const Tensor& dy) { return apply(ReduceTo{.group = group, .root = root}, dy); }
};

struct Send {
  static constexpr auto name = "send";
  Communicator group{};
  int to = 0, tag = 0;
  Tensor dx{};  // memory for it
  Tensor forward(const Tensor& x) {
    group.send(x, to, tag);
    if (detail::current_node()) dx = empty_like(x);
    return zeros({}, x.dtype(), x.device());
  }
  Tensor backward(const Tensor&) {
    group.receive_into(dx, to, tag);
    return dx;
  }
};

struct Receive {
  static constexpr auto name = "receive";
  Communicator group{};
  Tensor into{};
  int from = 0, tag = 0;
  /// `anchor` is there so that the result has a history.
  Tensor forward(const Tensor&) {
    group.receive_into(into, from, tag);
    return std::move(into);
  }
  Tensor backward(const Tensor& dy) {
    group.send(dy, from, tag);
    return {};
  }
};

void check_divides(const char* op, const Communicator& group, const Tensor& x, int dim) {
  check(bool(x), op, " of an undefined tensor");
  check(x.size(dim) % group.size() == 0, op, ": dimension ", dim, " of ", x.describe(),
        " does not divide by the ", group.size(), " ranks of ", group.describe());
}

}  // namespace

Tensor copy_to(const Communicator& group, const Tensor& x) {
  return group.size() == 1 ? x : apply(CopyTo{.group = group}, x);
}
Tensor reduce_from(const Communicator& group, const Tensor& x) {
  return group.size() == 1 ? x : apply(ReduceFrom{.group = group}, x);
}
Tensor scatter_to(const Communicator& group, const Tensor& x, int dim) {
  check_divides("scatter_to", group, x, dim);
  return group.size() == 1 ? x : apply(ScatterTo{.group = group, .dim = dim}, x);
}
Tensor gather_from(const Communicator& group, const Tensor& x, int dim, Consumer consumer) {
  if (group.size() == 1) return x;
  return apply(GatherFrom{.group = group, .dim = dim, .consumer = consumer}, x);
}
Tensor reduce_scatter(const Communicator& group, const Tensor& x, int dim) {
  check_divides("reduce_scatter", group, x, dim);
  return group.size() == 1 ? x : apply(ReduceScatter{.group = group, .dim = dim}, x);
}
Tensor all_to_all(const Communicator& group, const Tensor& x, int cut, int join) {
  check_divides("all_to_all", group, x, cut);
  return group.size() == 1 ? x : apply(AllToAll{.group = group, .cut = cut, .join = join}, x);
}
Tensor broadcast(const Communicator& group, const Tensor& x, int root) {
  return group.size() == 1 ? x : apply(Broadcast{.group = group, .root = root}, x);
}

Tensor send(const Communicator& group, const Tensor& x, int to, int tag) {
  return apply(Send{.group = group, .to = to, .tag = tag}, x);
}
Tensor receive(const Communicator& group, const Shape& shape, DType dtype, Device device, int from,
               int tag) {
  Tensor anchor = zeros({}, dtype, device).requires_grad_();
  Tensor into = empty(shape, dtype, device);
  return apply(Receive{.group = group, .into = into, .from = from, .tag = tag}, anchor);
}

// In a group of one all of them are the identity. What they do in larger groups, and send and receive,
// is tested in tests/parallel/collectives_test.cpp.
template <class Op>
static Gradcheck identity(Op op) {
  return {Op::name,
          [op](Sampler& s) {
            Tensor x = s.normal({4, 3});
            return apply(op, x * x);
          },
          true};
}
static const Gradcheck checks[] = {
    identity(CopyTo{}),
    identity(ReduceFrom{}),
    identity(ScatterTo{}),
    identity(GatherFrom{.dim = 1}),
    identity(GatherFrom{.consumer = Consumer::split}),
    identity(ReduceScatter{.dim = -1}),
    identity(AllToAll{.join = 1}),
    identity(ReduceTo{}),
    identity(Broadcast{}),
};

}  // namespace gradus::parallel
