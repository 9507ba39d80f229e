#include "core/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "core/check.h"

namespace gradus {
namespace {

using Block = std::vector<uint32_t>;

Block cipher(RandomBlock counter, uint32_t k0, uint32_t k1) {
  RandomBlock b = philox4x32(counter, k0, k1);
  return {b.x, b.y, b.z, b.w};
}

// The known answers that Random123 is published with: nothing, everything, and the digits of π.
TEST(Philox, KnownAnswers) {
  const uint32_t all = 0xffffffff;
  EXPECT_EQ(cipher({0, 0, 0, 0}, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(cipher({all, all, all, all}, all, all),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(cipher({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, CounterAndKeyAreLaidOutLowWordFirst) {
  Philox stream{0x299f31d0a4093822, 0x0370734413198a2e};
  uint64_t index = 0x85a308d3243f6a88;
  RandomBlock b = stream.block(index);
  EXPECT_EQ((Block{b.x, b.y, b.z, b.w}), (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Seed 1234, site 35 (layer 2, MLP output), sample 7.
TEST(Philox, WordsOfASite) {
  EXPECT_EQ(mix(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(mix(1), 0x910a2dec89025cc1u);
  Philox stream = Philox::at(1234, 35, 7);
  EXPECT_EQ(stream.seed, 0xe30ac8a9e5b2664cu);
  const uint32_t words[] = {0x71740a58, 0xf0de2793, 0x9a1d538b, 0xb0d7839d,
                            0x30399003, 0xb891a373, 0x3f93c877, 0x03cb5851};
  const bool tenth[] = {1, 1, 1, 1, 1, 1, 1, 0}, half[] = {0, 1, 1, 1, 0, 1, 0, 0};
  for (int e = 0; e < 8; ++e) {
    EXPECT_EQ(stream.word(e), words[e]);
    EXPECT_EQ(stream.keep(e, drop_threshold(0.1)), tenth[e]);
    EXPECT_EQ(stream.keep(e, drop_threshold(0.5)), half[e]);
  }
  EXPECT_EQ(stream.word((uint64_t(1) << 34) + 5), 0x16a47cb3u);  // past 32 bits
}

TEST(Philox, NormalsOfAParameter) {
  constexpr uint64_t site = fnv1a("layers.0.mlp.fc1.weight");
  EXPECT_EQ(site, 0xd7538eeabe502e92u);
  const double normals[] = {0.204666612, 1.577677905,  -0.554832845,
                            0.752360906, -0.950789835, -0.604267648};
  for (int e = 0; e < 6; ++e) EXPECT_NEAR(Philox::at(1234, site).normal(e), normals[e], 5e-10);
}

TEST(Philox, R9_R10_AnyPieceOfAStreamIsTheSliceOfTheWhole) {
  const Philox stream{42, 3};
  const int64_t whole = 2100;  // two pieces of the fill and a rest
  for (int64_t first : {0, 1, 2, 3, 4, 1021, 1024, 1030})
    for (int64_t n : {int64_t(0), int64_t(1), int64_t(5), int64_t(1024), whole - first}) {
      std::vector<uint32_t> words(n);
      std::vector<float> uniform(n), normal(n);
      std::vector<double> uniform64(n), normal64(n);
      fill_words(stream, first, words.data(), n);
      fill_uniform(stream, first, uniform.data(), n);
      fill_uniform(stream, first, uniform64.data(), n);
      fill_normal(stream, first, normal.data(), n);
      fill_normal(stream, first, normal64.data(), n);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(words[i], stream.word(first + i));
        ASSERT_EQ(uniform[i], stream.uniform(first + i));
        ASSERT_EQ(uniform64[i], stream.uniform<double>(first + i));
        ASSERT_EQ(normal[i], float(stream.normal(first + i)));
        ASSERT_EQ(normal64[i], stream.normal(first + i));
      }
    }
}

TEST(Philox, FillCrossesThe32BitBlockIndex) {
  const Philox stream{7, 1};
  const uint64_t first = (uint64_t(1) << 34) - 6;  // block 2³² − 2, lane 2
  uint32_t words[12];
  fill_words(stream, first, words, 12);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(words[i], stream.word(first + i));
}

TEST(Philox, UniformIsBelowOneAndTheSameNumberInBothTypes) {
  EXPECT_EQ(uniform_float(0), 0.0f);
  EXPECT_EQ(uniform_float(0xffffffff), 1 - 0x1p-24f);
  EXPECT_EQ(uniform_double(0, 0), 0.0);
  EXPECT_EQ(uniform_double(0xffffffff, 0xffffffff), 1 - 0x1p-53);
  const Philox stream{1, 2};
  std::set<uint64_t> low_bits;
  for (int i = 0; i < 100; ++i) {
    double u = stream.uniform<double>(i), f = stream.uniform<float>(i);
    EXPECT_GE(u - f, 0);  // the float is the double cut off after 24 bits
    EXPECT_LT(u - f, 0x1p-24);
    low_bits.insert(uint64_t(u * 0x1p53) & 0xfffff);
  }
  EXPECT_GT(low_bits.size(), 95u);  // the other bits are random too
}

// Means of n draws spread by σ/√n. The draws are fixed, so 4σ either holds for ever or never.
TEST(Philox, Moments) {
  const int n = 1 << 20;
  std::vector<double> x(n);
  auto mean = [&](auto f) {
    double sum = 0;
    for (double v : x) sum += f(v);
    return sum / n;
  };
  fill_uniform({2, 0}, 0, x.data(), n);
  EXPECT_NEAR(mean([](double v) { return v; }), 0.5, 4 * std::sqrt(1 / 12.0 / n));
  EXPECT_NEAR(mean([](double v) { return v * v; }), 1 / 3.0, 4 * std::sqrt(4 / 45.0 / n));
  fill_normal({2, 1}, 0, x.data(), n);
  EXPECT_NEAR(mean([](double v) { return v; }), 0, 4 * std::sqrt(1.0 / n));
  EXPECT_NEAR(mean([](double v) { return v * v; }), 1, 4 * std::sqrt(2.0 / n));
  EXPECT_NEAR(mean([](double v) { return v * v * v; }), 0, 4 * std::sqrt(15.0 / n));
  EXPECT_NEAR(mean([](double v) { return v * v * v * v; }), 3, 4 * std::sqrt(96.0 / n));
  EXPECT_NEAR(mean([](double v) { return std::abs(v) < 1; }), std::erf(std::sqrt(0.5)),
              4 * std::sqrt(0.25 / n));
  // Neighbours (the two of a pair, and across pairs), and the same element of the next stream.
  std::vector<double> next(n);
  fill_normal({2, 2}, 0, next.data(), n);
  double pair = 0, across = 0, stream = 0;
  for (int i = 0; i + 2 < n; i += 2) {
    pair += x[i] * x[i + 1] / (n / 2);
    across += x[i + 1] * x[i + 2] / (n / 2);
    stream += x[i] * next[i] / (n / 2);
  }
  for (double correlation : {pair, across, stream})
    EXPECT_NEAR(correlation, 0, 4 * std::sqrt(2.0 / n));
}

// Against the library in long double. Few roundings each: 4 units of 2⁻⁵³ for the radius, and as
// many of the pair's length for the components.
TEST(BoxMuller, AgreesWithTheLibrary) {
  const long double pi = 3.14159265358979323846264338327950288L;
  auto compare = [&](uint32_t a, uint32_t b) {
    NormalPair pair = box_muller(a, b);
    long double u = (a + 0.5L) * 0x1p-32L, v = (b + 0.5L) * 0x1p-32L;
    long double radius = std::sqrt(-2 * std::log(u));
    long double tolerance = 4 * 0x1p-53L * radius;
    ASSERT_NEAR(pair.even, radius * std::cos(2 * pi * v), tolerance) << a << ' ' << b;
    ASSERT_NEAR(pair.odd, radius * std::sin(2 * pi * v), tolerance) << a << ' ' << b;
  };
  for (uint32_t edge :
       {0u, 1u, 0x1fffffffu, 0x20000000u, 0x3fffffffu, 0x40000000u, 0x7fffffffu, 0x80000000u,
        0xb504f333u, 0xb504f334u, 0xdfffffffu, 0xe0000000u, 0xfffffffeu, 0xffffffffu}) {
    compare(edge, 12345);
    compare(12345, edge);
  }
  for (uint64_t i = 0; i < 100000; ++i) compare(Philox{5, 0}.word(i), Philox{5, 1}.word(i));
  NormalPair widest = box_muller(0, 0);
  EXPECT_NEAR(widest.even, std::sqrt(66 * std::log(2.0)), 1e-13);  // u = 2⁻³³
}

TEST(DropThreshold, R2_R3_ProbabilitiesAndErrors) {
  EXPECT_EQ(drop_threshold(0.1), 429496730u);
  EXPECT_EQ(drop_threshold(0.5), 2147483648u);
  EXPECT_EQ(drop_threshold(0), 0u);                 // no word is below: everything is kept
  EXPECT_EQ(drop_threshold(1), uint64_t(1) << 32);  // every word is below
  for (double p : {-0.1, 1.5, double(NAN)}) {
    try {
      drop_threshold(p);
      ADD_FAILURE() << p << " passed";
    } catch (const Error& e) {
      std::ostringstream value;
      value << "p = " << p;
      EXPECT_NE(std::string(e.what()).find(value.str()), std::string::npos) << e.what();
    }
  }
}

TEST(DropThreshold, KeepsTheRightShare) {
  const int n = 1 << 20;
  std::vector<uint32_t> words(n);
  fill_words({9, 0}, 0, words.data(), n);
  for (double p : {0.0, 0.001, 0.1, 0.5, 0.9, 1.0}) {
    double kept = 0;
    for (uint32_t word : words) kept += word >= drop_threshold(p);
    EXPECT_NEAR(kept / n, 1 - p, 4 * std::sqrt(p * (1 - p) / n));
  }
}

TEST(Generator, R5_EveryDrawHasItsOwnStreamAndASeedRepeats) {
  Generator a(17), b(17), other(18);
  Philox first = a.next(), second = a.next();
  EXPECT_EQ(first, b.next());
  EXPECT_EQ(second, b.next());
  int same = 0;
  for (int i = 0; i < 64; ++i) same += first.word(i) == second.word(i);
  Philox different = other.next();
  for (int i = 0; i < 64; ++i) same += first.word(i) == different.word(i);
  EXPECT_EQ(same, 0);
}

TEST(Generator, R6_R8_StateIsRestored) {
  Generator generator(17);
  generator.next();
  Generator::State state = generator.state();
  EXPECT_EQ(state, (Generator::State{17, 1}));
  Philox next = generator.next();
  generator.restore(state);
  EXPECT_EQ(generator.next(), next);
  EXPECT_EQ(Generator(state).next(), next);
  const uint64_t many = uint64_t(1) << 40;  // the count of streams is 64 bits wide
  EXPECT_EQ(Generator({17, many}).next(), (Philox{17, many}));
}

}  // namespace
}  // namespace gradus
