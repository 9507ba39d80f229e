#include "train/schedule_text.h"

#include <gtest/gtest.h>

#include "sched/sched.h"
#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

using namespace sched;

// Each kind, in words and in C++: equal at every update.
TEST(ScheduleText, EveryScheduleIsThatOfItsFunction) {
  const std::pair<const char*, Schedule> kinds[] = {
      {"0.1", constant(0.1)},
      {"constant(0.1)", constant(0.1)},
      {"step(0.1, 10, 0.5)", step(0.1, 10, 0.5)},
      {"multi_step(0.1, [5, 20, 21], 0.1)", multi_step(0.1, {5, 20, 21}, 0.1)},
      {"exponential(0.1, 0.9)", exponential(0.1, 0.9)},
      {"cosine_annealing(0.1, 0.001, 50)", cosine_annealing(0.1, 0.001, 50)},
      {"cosine_restarts(0.1, 0, 10)", cosine_restarts(0.1, 0, 10)},
      {"cosine_restarts(0.1, 0, 10, 2)", cosine_restarts(0.1, 0, 10, 2)},
      {"linear(0.03, 0.1, 5)", linear(0.03, 0.1, 5)},
      {"cosine(0.1, 0.01, 40)", cosine(0.1, 0.01, 40)},
      {"inverse_sqrt(0.1, 7)", inverse_sqrt(0.1, 7)},
      {"inverse_sqrt(0.1, 7, 0.05)", inverse_sqrt(0.1, 7, 0.05)},
      {"wsd(0.1, 0.01, 20, 10)", wsd(0.1, 0.01, 20, 10)},
      {"wsd(0.1, 0.01, 20, 10, cosine)", wsd(0.1, 0.01, 20, 10, Tail::cosine)},
      {"wsd(0.1, 0.01, 20, 10, exponential)", wsd(0.1, 0.01, 20, 10, Tail::exponential)},
      {"wsd(0.1, 0.01, 20, 10, minus_sqrt)", wsd(0.1, 0.01, 20, 10, Tail::minus_sqrt)},
      {"warmup(6e-4, 8, cosine(6e-4, 6e-5, 30))", warmup(6e-4, 8, cosine(6e-4, 6e-5, 30))},
      {"warmup( 0.1,4,linear(0.1,0,9),0.02 )", warmup(0.1, 4, linear(0.1, 0, 9), 0.02)},
      {"sequence([linear(0.01, 0.1, 5), cosine_annealing(0.1, 0.001, 45)], [5])",
       sequence({linear(0.01, 0.1, 5), cosine_annealing(0.1, 0.001, 45)}, {5})},
  };
  for (const auto& [text, expected] : kinds) {
    const Schedule parsed = parse_schedule(text);
    for (int64_t n = 0; n <= 60; ++n) EXPECT_EQ(parsed(n), expected(n)) << text << " at " << n;
  }
}

// E4: what the help offers works.
TEST(ScheduleText, TheHelpNamesEverySchedule) {
  for (const char* name :
       {"constant(", "step(", "multi_step(", "exponential(", "cosine_annealing(",
        "cosine_restarts(", "linear(", "cosine(", "inverse_sqrt(", "wsd(", "warmup(", "sequence("})
    EXPECT_NE(schedule_names().find(name), std::string::npos) << name;
}

TEST(ScheduleText, AnErrorShowsThePlaceOrTheParameters) {
  const auto error = [](const std::string& text) {
    return error_of([&] { parse_schedule(text); });
  };
  EXPECT_TRUE(holds(error("linear(0, 1"), {"',' or ')'", "\n             ^"}))
      << error("linear(0, 1");
  EXPECT_TRUE(holds(error("linear(0, 1, 5) 7"), {"the end"}));
  EXPECT_TRUE(holds(error(""), {"a number or the name"}));
  EXPECT_TRUE(holds(error("linear(0, , 5)"), {"a number or the name"}));
  EXPECT_TRUE(holds(error("liner(0, 1, 5)"), {"'liner'", "linear(from, to, steps)"}));
  EXPECT_TRUE(holds(error("linear"), {"name(arguments)", "linear"}));
  EXPECT_TRUE(holds(error("linear(0, 1)"), {"linear(from, to, steps)", "3", "got 2"}));
  EXPECT_TRUE(holds(error("linear(0, 1, 5.5)"), {"argument 3 of linear", "whole", "5.5"}));
  EXPECT_TRUE(holds(error("linear(0, [1], 5)"), {"argument 2 of linear", "number"}));
  EXPECT_TRUE(holds(error("multi_step(1, 5, 0.1)"), {"argument 2 of multi_step", "list"}));
  EXPECT_TRUE(holds(error("wsd(1, 0, 5, 5, 3)"), {"argument 5 of wsd", "word"}));
  EXPECT_TRUE(holds(error("wsd(1, 0, 5, 5, sine)"), {"sine", "minus_sqrt"}));
  EXPECT_TRUE(holds(error("linear(0, 1, 0)"), {"must be > 0"}));  // of the schedule itself
  EXPECT_TRUE(holds(error("1e999"), {"a number"}));
  EXPECT_TRUE(holds(error(std::string(5000, '[')), {"less nesting"}));
}

}  // namespace
}  // namespace gradus::train
