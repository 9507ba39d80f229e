#pragma once
// Curves as a picture of its own in SVG: no script, no font or file from elsewhere; dark where the
// reader's system is dark.
#include <string>

#include "train/plot.h"

namespace gradus::train {

/// Text with the characters that mean something to XML and HTML written as entities.
std::string escape_markup(const std::string& text);

/// The `d` of a path through the points, x and y in 0 … width and height (y downwards). Gaps break it.
std::string svg_path(std::span<const Point> points, const Axes& axes, double width, double height);

struct SvgPlot {
  std::string title{}, x_label = "updates";
  int width = 760, height = 400;  // height of one plot, which the legend adds to
};

/// All curves in one plot, told apart by colour and dashes and named in a legend.
std::string svg_plot(std::span<const Curve> curves, const SvgPlot& options);

}  // namespace gradus::train
