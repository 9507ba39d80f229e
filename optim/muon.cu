// Muon: momentum, orthogonalised.
//
//   m ← μ m + (1 − μ) g           u = m,   or, Nesterov,   u = (1 − μ) g + μ m
//   θ ← θ (1 − ηλ) − η · scale · O(u)
//
// Adam divides each entry of a gradient by its own size. A weight matrix is a map, and its natural
// measure is by how much it can change an output: its largest singular value. O(u) = P Qᵀ for
// u = P diag(s) Qᵀ gives all directions of u the same size, also the rare ones that large ones drown.
//
// An embedding is a table, no map: each step has gradients for a few rows. Tables, heads, norms and
// biases are left to AdamW, in the same arena, so that one norm clips all.
#include "optim/muon.h"

#include "autograd/accumulate.h"
#include "ops/ops.h"
#include "optim/adam_rule.h"

namespace gradus::optim {
namespace {

// Functors of one result each. Where the step is skipped they return what was there. Products next to
// sums are fused, as in all rules.

template <class W>
struct MomentumOf {
  const StepNumbers* n;
  double mu;
  GRADUS_HD W operator()(W m, W g) const {
    return n->applied ? fused(W(mu), m, W((1 - mu) * n->gradient_scale) * g) : m;
  }
};

template <class W>
struct Ahead {
  const StepNumbers* n;
  double mu;
  GRADUS_HD W operator()(W m, W g) const {
    return fused(W(mu), m, W((1 - mu) * n->gradient_scale) * g);
  }
};

template <class W>
struct Descend {
  const StepNumbers* n;
  Segment group;
  double scale;
  template <class O>
  GRADUS_HD W operator()(W theta, O o) const {
    if (!n->applied) return theta;
    const double lr = group.lr(*n), lambda = group.weight_decay(*n);
    return fused(W(-lr * scale), W(o), theta * W(1 - lr * lambda));
  }
};

/// y ← f(a, b) for tensors of one shape and any strides; y is of the type of a.
template <class W, class B, class F>
void combine(const Tensor& y, F f, const Tensor& a, const Tensor& b) {
  const Walk<3> walk({&y.shape(), &a.shape(), &b.shape()},
                     {&y.strides(), &a.strides(), &b.strides()});
  elementwise(y.device(), walk, f, y.data<W>(), static_cast<const W*>(a.data<W>()),
              static_cast<const B*>(b.data<B>()));
}

/// Rows [first, first + size) of every `unit` rows of a contiguous matrix: (units, size, columns).
Tensor piece_of(const Tensor& x, int64_t unit, int64_t first, int64_t size) {
  const int64_t columns = x.size(1);
  return x.alias({x.size(0) / unit, size, columns}, {unit * columns, columns, 1},
                 x.offset() + first * columns);
}

double length_of(MuonScale scale, double out, double in) {
  switch (scale) {
    case MuonScale::spectral:
      return std::sqrt(std::max(out, in));
    case MuonScale::shape:
      return std::sqrt(std::max(1.0, out / in));
    case MuonScale::unit_rms:
      return std::sqrt(out / in);
  }
  fail("no such scale of Muon: ", int(scale));
}

std::vector<int64_t> pieces_of(const MuonOptions& o, const nn::Parameter& p) {
  std::vector<int64_t> sizes = o.pieces ? o.pieces(p) : std::vector<int64_t>{};
  if (sizes.empty()) return {p.size(0)};
  int64_t unit = 0;
  for (int64_t size : sizes) check(size > 0, "Muon: a piece of ", size, " rows"), unit += size;
  check(p.size(0) % unit == 0, "Muon: pieces of ", unit, " rows in all do not divide ",
        p.describe());
  return sizes;
}

}  // namespace

Muon::Muon(std::vector<ParameterGroup> groups, MuonOptions o, const ArenaOptions& arena)
    : Optimizer(std::move(groups), arena), options(std::move(o)), m_(flat().make_state()) {
  check(arena.slices == 1, "Muon updates whole matrices, so data ranks cannot share an update in ",
        arena.slices, " slices; use Adam, or do without ZeRO");
  check(options.momentum >= 0 && options.momentum < 1 && options.weight_decay >= 0 &&
            options.extra_scale > 0,
        "Muon: 0 ≤ μ < 1, a weight decay ≥ 0 and a scale > 0 are needed, got ", options.momentum,
        ", ", options.weight_decay, " and ", options.extra_scale);
  optim::validate(options.others);
  optim::validate(options.orthogonal);
  length_of(options.scale, 1, 1);
  const auto& all = flat().groups();
  while (others_ < int(all.size()) && !all[size_t(others_)].whole_matrices) ++others_;
  for (size_t g = size_t(others_); g < all.size(); ++g)
    check(all[g].whole_matrices, "Muon: the groups of matrices must come last, not before \"",
          all[g].name, "\"");
  for (const FlatBuffer::Slot& slot : flat().slots()) {
    if (slot.group < others_) continue;
    const nn::Parameter& p = slot.parameter;
    check(p.rank() == 2, "Muon: a matrix is needed, got ", p.describe());
    check(p.shard.dim < 0 || p.shard.ranks == 1, "Muon: ", p.describe(),
          " is a shard, and the rule needs whole matrices");
    pieces_of(options, p);
  }
  if (others_ > 0) {
    const Tensor& g = flat().gradients();
    v_ = zeros({flat().range(others_ - 1).end}, g.dtype(), g.device());
  }
}

std::vector<Optimizer::Arena> Muon::arenas() const {
  std::vector<Arena> list{{"m", m_}};
  if (v_) list.push_back({"v", v_});
  return list;
}

void Muon::apply(const StepNumbers* numbers) {
  if (v_)
    dispatch_masters(flat(), [&]<class W>() {
      fused_update<W>(flat(), 0, others_, AdamRule<W>(options.others), numbers, m_, v_);
    });
  if (!m_.device().is_cuda() && !numbers->applied) return;  // a GPU finds that out by itself
  for (const FlatBuffer::Slot& slot : flat().slots())
    if (slot.group >= others_) update_matrix(slot, numbers);
}

void Muon::update_matrix(const FlatBuffer::Slot& slot, const StepNumbers* numbers) {
  const Tensor g = flat().view(flat().gradients(), slot), m = flat().view(m_, slot);
  const Tensor theta = flat().master(slot).read();
  const Segment factors({}, flat().groups()[size_t(slot.group)]);
  const std::vector<int64_t> sizes = pieces_of(options, slot.parameter);
  int64_t unit = 0, first = 0;
  for (int64_t size : sizes) unit += size;
  dispatch_masters(flat(), [&]<class W>() {
    combine<W, W>(m, MomentumOf<W>{numbers, options.momentum}, m, g);
    Tensor u = m;
    if (options.nesterov)
      combine<W, W>(u = empty_like(m), Ahead<W>{numbers, options.momentum}, m, g);
    for (int64_t size : sizes) {
      const Tensor part = piece_of(u, unit, first, size),
                   target = piece_of(theta, unit, first, size);
      const int64_t rows = part.size(0) * size, columns = u.size(1);
      const Tensor o = orthogonalize(reshape(part, {rows, columns}), options.orthogonal,
                                     options.products.value_or(u.dtype()));
      const double scale =
          options.extra_scale * length_of(options.scale, double(rows), double(columns));
      dispatch_floating("Muon", o.dtype(), [&]<class O>() {
        combine<W, O>(target, Descend<W>{numbers, factors, scale}, target,
                      o.alias(target.shape(), contiguous_strides(target.shape()), 0));
      });
      first += size;
    }
  });
  if (flat().are_masters_split())
    flat().master(slot).write(theta);
  else if (flat().has_masters())
    write_values(flat().view(flat().parameters(), slot), theta);
}

}  // namespace gradus::optim
