#include "nn/summary.h"

#include <array>
#include <iomanip>

namespace gradus::nn {
namespace {

template <class T>
std::string text(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

/// 124439808 → "124,439,808"
std::string grouped(int64_t n) {
  std::string digits = std::to_string(n);
  for (size_t i = digits.size(); i > 3;) digits.insert(i -= 3, 1, ',');
  return digits;
}

using Row = std::array<std::string, 4>;  // name, shape, type, elements

std::string table(const std::vector<Row>& rows) {
  std::array<size_t, 4> width{};
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  std::ostringstream out;
  for (const Row& row : rows) {
    for (size_t i = 0; i < 3; ++i) out << std::left << std::setw(int(width[i])) << row[i] << "  ";
    out << std::right << std::setw(int(width[3])) << row[3] << "\n";
  }
  return out.str();
}

}  // namespace

ParameterCount count_parameters(Module& module) {
  ParameterCount count;
  for (const Parameter& p : module.parameters()) {
    count.elements += p.numel();
    count.bytes += bytes_of(p);
    if (!p.requires_grad()) continue;
    count.trainable_elements += p.numel();
    count.trainable_bytes += bytes_of(p);
  }
  return count;
}

std::string summary(Module& module) {
  std::vector<Row> rows{{"parameter", "shape", "type", "elements"}};
  for (const auto& [name, p] : module.named_parameters())
    rows.push_back({name, text(p.shape()), text(p.dtype()) + (p.requires_grad() ? "" : " frozen"),
                    grouped(p.numel())});
  ParameterCount count = count_parameters(module);
  rows.push_back({"total", "", "", grouped(count.elements)});
  return table(rows) + grouped(count.trainable_elements) + " of them are trained, " +
         grouped(count.trainable_bytes) + " bytes\n";
}

}  // namespace gradus::nn
