#include "sched/style.h"

#include <gtest/gtest.h>

#include <sstream>

namespace gradus::sched {
namespace {

TEST(ScheduleStyle, NamesInBothDirections) {
  for (const char* name : {"constant", "linear", "cosine", "inverse_sqrt", "wsd"})
    EXPECT_STREQ(name_of(parse_style<RateStyle>(name)), name);
  for (const char* name : {"linear", "cosine", "exponential", "minus_sqrt"})
    EXPECT_STREQ(name_of(parse_style<Tail>(name)), name);
  EXPECT_EQ(parse_style<RateStyle>("wsd"), RateStyle::wsd);
  EXPECT_EQ(parse_style<Tail>("minus_sqrt"), Tail::minus_sqrt);
  EXPECT_EQ(parse_style<IncrementStyle>("cosine"), IncrementStyle::cosine);
  std::ostringstream out;
  out << RateStyle::inverse_sqrt;
  EXPECT_EQ(out.str(), "inverse_sqrt");
}

TEST(ScheduleStyle, UnknownNamesAreErrorsThatListTheKnown) {
  try {
    parse_style<IncrementStyle>("cosin");
    FAIL();
  } catch (const Error& e) {
    std::string text = e.what();
    EXPECT_NE(text.find("unknown weight-decay style 'cosin'; known are constant, linear, cosine"),
              text.npos)
        << text;
  }
  EXPECT_THROW(name_of(Tail(4)), Error);
}

}  // namespace
}  // namespace gradus::sched
