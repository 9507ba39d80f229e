#include "train/consistency.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "ops/ops.h"

namespace gradus::train {
namespace {

constexpr double kFloor = 1e-3;     // of the root mean square of all gradients
constexpr double kTooSmall = 1e-4;  // no gradient above it: agreeing means little

double squared(double x) { return x * x; }

// Row-major index of element `i`.
std::string place_of(int64_t i, const Shape& shape) {
  Shape index = shape;
  for (int d = shape.rank() - 1; d >= 0; --d) index[d] = i % shape[d], i /= shape[d];
  std::ostringstream text;
  text << index;
  return text.str();
}

// A NaN is never within a bound.
bool within(double value, double bound) { return value <= bound; }

// The larger one; NaN if either is.
double worse(double a, double b) { return std::isnan(a) || a > b ? a : b; }

}  // namespace

double Bound::at(int64_t above) const {
  return k * epsilon * std::pow(growth, double(std::max<int64_t>(above, 0)));
}

Bound bound_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return Bound::flat(1e-12);
    case DType::bf16:
      return {.k = 4, .epsilon = 0x1p-7, .judges_rows = false};
    case DType::f16:
      return {.k = 4, .epsilon = 0x1p-10, .judges_rows = false};
    default:
      return {};
  }
}

bool ConsistencyReport::agrees() const {
  const auto agree = [](const auto& list) {
    return std::all_of(list.begin(), list.end(), [](const auto& x) { return x.agrees; });
  };
  return faults.empty() && agree(tensors) && agree(numbers);
}

double ConsistencyReport::worst_rel() const {
  double worst = 0;
  for (const TensorDifference& t : tensors) worst = worse(t.rel, worst);
  return worst;
}

double ConsistencyReport::worst_row_rel() const {
  double worst = 0;
  for (const TensorDifference& t : tensors) worst = worse(t.row_rel, worst);
  return worst;
}

std::string ConsistencyReport::summary() const {
  std::ostringstream out;
  const auto differing = [](const auto& list) {
    return std::count_if(list.begin(), list.end(), [](const auto& x) { return !x.agrees; });
  };
  const int64_t different = differing(tensors);
  out << (agrees() ? "they agree: " : "THEY DIFFER: ") << different << " of " << tensors.size()
      << " tensors differ";
  for (const NumberDifference& n : numbers)
    if (!n.agrees) out << ", the " << n.name << " differs";
  if (!faults.empty()) out << ", " << faults.size() << " faults";
  out.precision(3);
  out << "; worst rel " << worst_rel() << ", worst row rel " << worst_row_rel();
  return out.str();
}

void ConsistencyCheck::add(const std::string& name, int64_t layer, const Tensor& left,
                           const Tensor& right) {
  if (left.shape() != right.shape() || left.dtype() != right.dtype()) {
    std::ostringstream text;
    text << name << " is " << left.dtype() << ' ' << left.shape() << " on the left, "
         << right.dtype() << ' ' << right.shape() << " on the right";
    return add_fault(text.str());
  }
  const Tensor a = contiguous(cast(left.detach(), DType::f64));
  const Tensor b = contiguous(cast(right.detach(), DType::f64));
  TensorDifference found;
  found.name = name;
  found.bound = bound_.at(layers_ + 1 - layer);
  sums_.push_back(measure(a.data<double>(), b.data<double>(), a.shape(), found));
  report_.tensors.push_back(std::move(found));
}

ConsistencyCheck::Sums ConsistencyCheck::measure(const double* left, const double* right,
                                                 const Shape& shape, TensorDifference& found) {
  Sums sums;
  sums.numel = shape.numel();
  sums.columns = std::max<int64_t>(shape.rank() == 0 ? 1 : shape[-1], 1);
  double largest = -1;
  for (int64_t row = 0; row < sums.numel; row += sums.columns) {
    auto& [difference, norm] = sums.rows.emplace_back(0, 0);
    for (int64_t c = 0; c < sums.columns; ++c) {
      const double l = left[row + c], r = right[row + c], d = std::abs(r - l);
      difference += squared(d), norm += squared(l);
      sums.rolled += squared(right[row + (c + 1) % sums.columns] - l);
      found.largest = worse(std::abs(l), worse(std::abs(r), found.largest));
      if (std::isnan(largest) || d <= largest) continue;  // the first NaN counts as the largest
      largest = d, found.left = l, found.right = r;
      found.place = place_of(row + c, shape);
    }
    sums.difference += difference, sums.left += norm;
  }
  return sums;
}

void ConsistencyCheck::add_number(const std::string& name, double left, double right) {
  const double scale = std::max(std::abs(left), std::abs(right));
  NumberDifference n{name, left, right, left == right ? 0 : std::abs(right - left) / scale,
                     bound_.at(layers_ + 1)};
  n.agrees = within(n.rel, n.bound);
  report_.numbers.push_back(n);
}

void ConsistencyCheck::add_count(const std::string& name, int64_t left, int64_t right) {
  add_number(name, double(left), double(right));
  report_.numbers.back().bound = 0;
  report_.numbers.back().agrees = left == right;
}

void ConsistencyCheck::judge(TensorDifference& t, const Sums& s, double floor) const {
  const auto relative = [](double difference, double norm, double least) {
    return difference == 0 ? 0 : std::sqrt(difference) / std::max(std::sqrt(norm), least);
  };
  const double least = floor * std::sqrt(double(s.numel));
  t.rel = relative(s.difference, s.left, least);
  t.rolled = relative(s.rolled, s.left, least);
  for (const auto& [difference, norm] : s.rows)
    t.row_rel = worse(relative(difference, norm, floor * std::sqrt(double(s.columns))), t.row_rel);
  t.agrees = within(t.rel, t.bound) && (!bound_.judges_rows || within(t.row_rel, t.bound));
}

ConsistencyReport ConsistencyCheck::finish() {
  double squares = 0, largest = 0;
  int64_t elements = 0;
  for (const Sums& s : sums_) squares += s.left, elements += s.numel;
  const double floor = kFloor * std::sqrt(squares / double(std::max<int64_t>(elements, 1)));
  for (size_t i = 0; i < sums_.size(); ++i) {
    judge(report_.tensors[i], sums_[i], floor);
    largest = worse(report_.tensors[i].largest, largest);
    if (report_.tensors[i].largest <= kTooSmall)
      report_.warnings.push_back(report_.tensors[i].name + " is at most " +
                                 std::to_string(kTooSmall) + " on both sides");
  }
  if (sums_.empty()) add_fault("there are no tensors to compare");
  if (!sums_.empty() && largest == 0) add_fault("every tensor is 0: nothing was learned");
  return std::move(report_);
}

}  // namespace gradus::train
