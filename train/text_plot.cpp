#include "train/text_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace gradus::train {
namespace {

// Dots, (0, 0) at the lower left; eight to a character.
class Canvas {
 public:
  Canvas(int columns, int rows)
      : columns_(columns), rows_(rows), cells_(size_t(columns) * size_t(rows)) {}

  int right() const { return 2 * columns_ - 1; }
  int top() const { return 4 * rows_ - 1; }

  void dot(int x, int y) {
    // Unicode numbers the dots of a cell 1 2 3 7 down its left side, 4 5 6 8 down its right side.
    constexpr unsigned char kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const int row = (top() - y) / 4, within = (top() - y) % 4;
    cells_[size_t(row * columns_ + x / 2)] |= kBits[within][x % 2];
  }

  void line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i)
      dot(x0 + int(std::lround(double(i) * (x1 - x0) / steps)),
          y0 + int(std::lround(double(i) * (y1 - y0) / steps)));
  }

  std::string row(int r) const {
    std::string text;
    size_t blanks = 0;  // not at the end of a line
    for (int c = 0; c < columns_; ++c) {
      const unsigned char dots = cells_[size_t(r * columns_ + c)];
      if (dots == 0) {
        ++blanks;
        continue;
      }
      text.append(std::exchange(blanks, 0), ' ');
      text += '\xE2';  // U+2800 + dots in UTF-8
      text += char(0xA0 | (dots >> 6));
      text += char(0x80 | (dots & 0x3F));
    }
    return text;
  }

 private:
  int columns_, rows_;
  std::vector<unsigned char> cells_;
};

int along(const Axis& axis, double value, int last) {
  return std::clamp(int(std::lround(axis.share(value) * last)), 0, last);
}

void draw(Canvas& canvas, const Curve& curve, const Axes& axes) {
  const Point* previous = nullptr;
  for (const Point& p : curve.points) {
    if (!std::isfinite(p.y)) {
      previous = nullptr;
      continue;
    }
    const Point& q = previous ? *previous : p;
    canvas.line(along(axes.x, q.x, canvas.right()), along(axes.y, q.y, canvas.top()),
                along(axes.x, p.x, canvas.right()), along(axes.y, p.y, canvas.top()));
    previous = &p;
  }
}

size_t widest(const std::vector<std::string>& labels) {
  size_t width = 0;
  for (const std::string& label : labels) width = std::max(width, label.size());
  return width;
}

// The label of a tick that lies in row r (0 at the top), or nothing.
std::string label_of_row(const Axis& axis, int r, int rows) {
  for (size_t i = 0; i < axis.ticks.size(); ++i)
    if (along(axis, axis.ticks[i], rows - 1) == rows - 1 - r) return axis.labels[i];
  return "";
}

std::string padded(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

// The line below the plot and the numbers below that.
std::string x_axis(const Axis& axis, size_t margin, int columns, const std::string& label) {
  std::string line = std::string(margin, ' ') + " └";
  std::string numbers(margin + 2, ' ');
  std::vector<bool> is_tick(size_t(columns), false);
  for (size_t i = 0; i < axis.ticks.size(); ++i) {
    const int column = along(axis, axis.ticks[i], columns - 1);
    const std::string& text = axis.labels[i];
    is_tick[size_t(column)] = true;
    const size_t centred = margin + 2 + size_t(column) - std::min(text.size() / 2, size_t(column));
    const size_t place = std::min(centred, margin + 2 + size_t(columns) - text.size());
    if (i > 0 && place <= numbers.size()) continue;  // no room beside the one before
    numbers.resize(place, ' ');
    numbers += text;
  }
  for (bool tick : is_tick) line += tick ? "┬" : "─";
  if (numbers.size() + 1 + label.size() <= margin + 2 + size_t(columns))
    numbers = numbers + padded(label, margin + 2 + size_t(columns) - numbers.size());
  return line + "\n" + numbers + "\n";
}

}  // namespace

std::string text_plot(const Curve& curve, const TextPlot& options) {
  constexpr int kLeastColumns = 10, kLeastRows = 2;
  const Axes axes = axes_of(std::span(&curve, 1), options.width / 12, 5);
  const size_t margin = widest(axes.y.labels);
  const int columns = options.width - int(margin) - 2;
  check(columns >= kLeastColumns && options.height >= kLeastRows, "a plot needs at least ",
        kLeastColumns + int(margin) + 2, " columns and ", kLeastRows, " rows, got ", options.width,
        " and ", options.height);
  Canvas canvas(columns, options.height);
  draw(canvas, curve, axes);
  std::string out = curve.name + "\n";
  for (int r = 0; r < options.height; ++r) {
    const std::string label = label_of_row(axes.y, r, options.height);
    out += padded(label, margin) + (label.empty() ? " │" : " ┤") + canvas.row(r) + "\n";
  }
  return out + x_axis(axes.x, margin, columns, options.x_label);
}

}  // namespace gradus::train
