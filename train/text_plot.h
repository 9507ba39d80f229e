#pragma once
// A curve on a terminal, in Braille characters: each holds 2 × 4 dots.
//
//   1 ┤  ⢀⠔⠉⠒⢄
//     │ ⡠⠃   ⠑⢄
//   0 ┼─┴───────┴──
//     0         10
#include <string>

#include "train/plot.h"

namespace gradus::train {

struct TextPlot {
  int width = 80, height = 12;  // columns in all, rows of the plot itself
  std::string x_label = "updates";
};

/// The curve below its name, every line ended; no line of the plot is wider than `width`. Error when
/// there is no room for it.
std::string text_plot(const Curve& curve, const TextPlot& options);

}  // namespace gradus::train
