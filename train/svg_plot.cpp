#include "train/svg_plot.h"

#include <cmath>
#include <cstdio>

namespace gradus::train {
namespace {

// Colours that the colour-blind can tell apart [Okabe & Ito 2008], lighter ones on a dark ground.
constexpr const char* kStyle = R"(<style>
svg { font: 13px system-ui, sans-serif; background: #fff; color: #222; }
text { fill: currentColor; }
.grid { stroke: currentColor; stroke-opacity: .15; }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.c0 { stroke: #0072b2; } .c1 { stroke: #b34700; stroke-dasharray: 8 3; }
.c2 { stroke: #007a5a; stroke-dasharray: 2 3; } .c3 { stroke: #a6508a; stroke-dasharray: 10 3 2 3; }
.c4 { stroke: #8a6d00; stroke-dasharray: 5 5; } .c5 { stroke: #222; stroke-dasharray: 1 4; }
@media (prefers-color-scheme: dark) {
svg { background: #16181c; color: #ddd; }
.c0 { stroke: #56b4e9; } .c1 { stroke: #e69f00; } .c2 { stroke: #2fc597; } .c3 { stroke: #d79ac0; }
.c4 { stroke: #f0e442; } .c5 { stroke: #ddd; }
}
</style>
)";
constexpr int kColours = 6;

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[160];
  std::snprintf(text, sizeof(text), pattern, values...);
  return text;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor) +
         escape_markup(text) + "</text>\n";
}

std::string line_from(double x0, double y0, double x1, double y1) {
  return format("<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x0, y0,
                x1, y1);
}

std::string colour_class(size_t i) { return "curve c" + std::to_string(i % kColours); }

std::string grid(const Axes& axes, double width, double height) {
  std::string out;
  for (size_t i = 0; i < axes.y.ticks.size(); ++i) {
    const double y = height * (1 - axes.y.share(axes.y.ticks[i]));
    out += line_from(0, y, width, y) + text_at(-8, y + 4, "end", axes.y.labels[i]);
  }
  for (size_t i = 0; i < axes.x.ticks.size(); ++i) {
    const double x = width * axes.x.share(axes.x.ticks[i]);
    out += line_from(x, 0, x, height) + text_at(x, height + 18, "middle", axes.x.labels[i]);
  }
  return out;
}

std::string legend_line(size_t i, const std::string& name, double y) {
  return format("<path class=\"%s\" d=\"M0 %.1fH32\"/>\n", colour_class(i).c_str(), y - 4) +
         text_at(40, y, "start", name);
}

}  // namespace

std::string escape_markup(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string svg_path(std::span<const Point> points, const Axes& axes, double width, double height) {
  std::string d;
  bool drawing = false;
  for (const Point& p : points) {
    const double x = width * axes.x.share(p.x), y = height * (1 - axes.y.share(p.y));
    if (!std::isfinite(x) || !std::isfinite(y)) {
      drawing = false;
      continue;
    }
    d += format("%c%.1f %.1f", drawing ? 'L' : 'M', x, y);
    drawing = true;
  }
  return d;
}

std::string svg_plot(std::span<const Curve> curves, const SvgPlot& o) {
  constexpr double kLeft = 64, kRight = 20, kTop = 44, kBelow = 52, kLine = 20;
  const double width = o.width - kLeft - kRight, height = o.height - kTop - kBelow;
  check(width > 0 && height > 0, "an SVG plot must be larger than ", kLeft + kRight, " × ",
        kTop + kBelow, ", got ", o.width, " × ", o.height);
  const Axes axes = axes_of(curves, o.width / 90, o.height / 60);
  const double total = o.height + kLine * double(curves.size());
  const std::string title = escape_markup(o.title);

  std::string out =
      format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" role=\"img\" ",
             o.width, total);
  out += "aria-label=\"" + title + "\">\n<title>" + title + "</title>\n" + kStyle;
  out += "<g font-weight=\"600\">" + text_at(kLeft, 24, "start", o.title) + "</g>\n";
  out += format("<g transform=\"translate(%.0f %.0f)\">\n", kLeft, kTop);
  out += grid(axes, width, height) + text_at(width, height + 38, "end", o.x_label);
  for (size_t i = 0; i < curves.size(); ++i) {
    out += "<path class=\"" + colour_class(i) + "\" d=\"" +
           svg_path(curves[i].points, axes, width, height) + "\"/>\n";
    out += legend_line(i, curves[i].name, height + kBelow + kLine * double(i) + 4);
  }
  return out + "</g>\n</svg>\n";
}

}  // namespace gradus::train
