#include "nn/loss.h"

namespace gradus::nn {

Tensor LossSum::mean() const {
  return div(sum, maximum(count, ones({}, count.dtype(), count.device())));
}

LossSum cross_entropy_sum(const Tensor& logits, const Tensor& targets,
                          CrossEntropyOptions options) {
  options.reduction = Reduction::sum;
  Tensor sum = cross_entropy(logits, targets, options);
  return {sum, count_targets(targets, options.ignore_index, sum.dtype())};
}

LossSum masked_sum(const Tensor& losses, const Tensor& mask) {
  check(losses && mask && losses.shape() == mask.shape(), "masked_sum: losses ", losses.describe(),
        " need a mask of their shape, got ", mask.describe());
  Tensor weights = cast(mask.detach(), losses.dtype());
  Tensor hidden = equal(weights, zeros({}, weights.dtype(), weights.device()));
  return {sum(mul(masked_fill(losses, hidden, 0), weights)), sum(weights)};
}

}  // namespace gradus::nn
