#include "parallel/tensor_parallel.h"

#include "parallel/collectives.h"

namespace gradus::parallel {

int64_t TensorParallel::part(int64_t n, const char* what) const {
  check(n % ranks() == 0, what, " (", n, ") cannot be cut over ", ranks(), " ranks (",
        group.describe(), "): it must be a multiple of their number");
  return n / ranks();
}
void TensorParallel::check_tokens(int64_t tokens) const {
  check(!splits_tokens() || tokens % ranks() == 0, "sequence parallelism: ", tokens,
        " tokens do not divide by ", ranks(), " ranks; choose a batch whose number of tokens does");
}
nn::Shard TensorParallel::rows(int pieces) const {
  return {.dim = is_cut() ? 0 : -1, .rank = rank(), .ranks = ranks(), .pieces = pieces};
}
nn::Shard TensorParallel::columns() const {
  return {.dim = is_cut() ? 1 : -1, .rank = rank(), .ranks = ranks()};
}
nn::Shard TensorParallel::whole() const { return {.partial_grad = splits_tokens()}; }

/// How many of the outputs of a column layer are here: each piece is cut by itself.
static int64_t own_outputs(const TensorParallel& tp, int64_t out, int pieces) {
  check(pieces > 0 && out % pieces == 0, "the outputs of a column layer (", out,
        ") are not made of ", pieces, " equal pieces");
  return pieces * tp.part(out / pieces, "the outputs of a column layer, or a piece of them");
}

ColumnLinear::ColumnLinear(int64_t in, int64_t out, const TensorParallel& tp, Options options)
    : tp(tp),
      gather_output(options.gather_output),
      weight({own_outputs(tp, out, options.pieces), in},
             nn::init::kaiming_uniform(in, 0.5773502691896258), tp.rows(options.pieces)) {
  check(!(gather_output && tp.splits_tokens()),
        "a column layer gathers its output or the tokens of its input, not both");
  check(!gather_output || options.pieces == 1 || !tp.is_cut(),
        "a column layer in pieces cannot gather its output: parts of ranks, side by side, are not "
        "in the order of the rows");
  if (options.bias)
    bias = nn::Parameter({weight.size(0)}, nn::init::zeros(), tp.rows(options.pieces));
}

Tensor ColumnLinear::operator()(const Tensor& x) const {
  Tensor y = column_linear(tp, x, weight, bias);
  return gather_output ? gather_from(tp.group, y, -1, Consumer::replicated) : y;
}

RowLinear::RowLinear(int64_t in, int64_t out, const TensorParallel& tp, Options options)
    : tp(tp),
      input_is_parallel(options.input_is_parallel),
      weight({out, tp.part(in, "the inputs of a row layer")},
             nn::init::kaiming_uniform(in, 0.5773502691896258), tp.columns()) {
  check(input_is_parallel || !tp.splits_tokens(),
        "a row layer that cuts its input along the last dimension cannot have its tokens cut, too");
  if (options.bias) bias = nn::Parameter({out}, nn::init::zeros(), tp.whole());
}

Tensor RowLinear::apply_with(const Tensor& added, const Tensor& x) const {
  return row_linear(tp, input_is_parallel ? x : scatter_to(tp.group, x, -1), weight, added);
}

}  // namespace gradus::parallel
