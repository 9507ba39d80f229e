#pragma once
// A schedule as the text that makes it in C++:
//
//   warmup(6e-4, 2000, cosine(6e-4, 6e-5, 58000))
//   sequence([linear(0.01, 0.1, 5), cosine_annealing(0.1, 0.001, 45)], [5])
//   wsd(1e-3, 0, 800, 200, minus_sqrt)
//
//   schedule   =  number  |  name ( argument, … )
//   argument   =  schedule  |  word  |  [ argument, … ]
#include <string>

#include "sched/schedule.h"

namespace gradus::train {

/// Error that shows the place when the text is not understood, and the arguments that a schedule takes
/// when they are others.
sched::Schedule parse_schedule(const std::string& text);

/// One line for each schedule: "step(rate, every, γ)   StepLR". For the help.
std::string schedule_names();

}  // namespace gradus::train
