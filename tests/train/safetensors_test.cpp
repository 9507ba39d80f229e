#include "train/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A file with this header and so many bytes of data.
std::string file_of(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + std::string(data, '\1');
}

std::string error_in(const std::string& file) {
  return error_of([&] { parse_safetensors(std::as_bytes(std::span(file)), "m.safetensors"); });
}

constexpr const char* kGood = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                              R"("b":{"dtype":"I64","shape":[],"data_offsets":[24,32]}})";

TEST(Safetensors, WhatIsWrittenIsRead) {
  TemporaryDirectory d;
  const std::string path = d / "m.safetensors";
  const std::vector<SafetensorsOutput> tensors{
      {"first", DType::f32, {2, 3}}, {"none", DType::f32, {0, 7}}, {"last", DType::f32, {1}}};
  const std::vector<std::vector<float>> values{{1, 2, 3, 4, 5, 6}, {}, {-0.5f}};
  write_safetensors(path, tensors, [&](size_t i) { return bytes_of(values[i]); });
  const SafetensorsFile file(path);
  ASSERT_EQ(file.tensors().size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const SafetensorsEntry& entry = file.tensors().at(tensors[i].name);
    EXPECT_EQ(entry.dtype, DType::f32);
    EXPECT_EQ(entry.shape, tensors[i].shape);
    const auto bytes = file.bytes(tensors[i].name);
    EXPECT_EQ(std::vector<std::byte>(bytes.begin(), bytes.end()), bytes_of(values[i]));
  }
  EXPECT_TRUE(holds(error_of([&] { file.bytes("other"); }), {"m.safetensors", "'other'"}));
  EXPECT_TRUE(holds(error_of([&] { write_safetensors(path, tensors, {}); }), {"m.safetensors"}));
}

// Elements begin at a multiple of 8 bytes: others map such files and read the elements in place.
TEST(Safetensors, ElementsAreAligned) {
  TemporaryDirectory d;
  for (const char* name : {"a", "ab", "abc", "abcd"}) {
    const std::vector<SafetensorsOutput> one{{name, DType::f32, {1}}};
    write_safetensors(d / name, one, [](size_t) { return bytes_of({1}); });
    const std::string file = read_text(d / name);
    EXPECT_EQ((file.size() - sizeof(float)) % 8, 0u);
  }
}

TEST(Safetensors, ItKnowsTypesThatItDoesNotComputeIn) {
  const std::string file =
      file_of(R"({"a":{"dtype":"I8","shape":[3],"data_offsets":[0,3]},)"
              R"("m":{"dtype":"BOOL","shape":[1],"data_offsets":[3,4]},"__metadata__":{"k":"v"}})",
              4);
  const SafetensorsHeader header = parse_safetensors(std::as_bytes(std::span(file)), "m");
  EXPECT_EQ(header.tensors.size(), 2u);
  EXPECT_FALSE(header.tensors.at("a").dtype.has_value());
  EXPECT_EQ(header.tensors.at("m").dtype, DType::u8);
}

TEST(Safetensors, AnErrorNamesTheFileTheTensorAndBothSides) {
  EXPECT_EQ(error_in(file_of(kGood, 32)), "no error");
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"", {"m.safetensors", "0 bytes"}},
      {"1234567", {"7 bytes", "no room"}},
      {file_of(kGood, 32).substr(0, 60), {"header has 111 bytes", "only 52"}},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}",
       {"9223372036854775807", "104857600"}},
      {file_of("[1]", 0), {"no object"}},
      {file_of("{\"a\":", 0), {"not JSON"}},
      {file_of("{\"a\":1}", 0), {"'a'", "data_offsets"}},
      {file_of(kGood, 31), {"end at byte 32", "has 31"}},
      {file_of(kGood, 33), {"end at byte 32", "has 33"}},
  };
  for (const auto& [file, parts] : cases)
    EXPECT_TRUE(holds(error_in(file), parts)) << error_in(file);
}

TEST(Safetensors, OneTensorThatDoesNotFitIsNamed) {
  const auto error = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets, size_t data = 24) {
    return error_in(file_of("{\"w\":{\"dtype\":" + dtype + ",\"shape\":" + shape +
                                ",\"data_offsets\":" + offsets + "}}",
                            data));
  };
  const std::string f32 = "\"F32\"";
  EXPECT_EQ(error(f32, "[2,3]", "[0,24]"), "no error");
  EXPECT_TRUE(holds(error("\"F31\"", "[2,3]", "[0,24]"), {"'w'", "'F31'", "F32", "BF16"}));
  EXPECT_TRUE(holds(error("7", "[2,3]", "[0,24]"), {"'w'", "dtype", "7"}));
  EXPECT_TRUE(holds(error(f32, "[2,4]", "[0,24]"), {"'w'", "(2, 4) has 32 bytes", "[0,24]"}));
  EXPECT_TRUE(holds(error(f32, "[-2,-3]", "[0,24]"), {"'w'", "shape", "-2"}));
  EXPECT_TRUE(holds(error(f32, "[2.5]", "[0,24]"), {"whole number", "2.5"}));
  EXPECT_TRUE(holds(error(f32, "[18446744073709551615]", "[0,24]"), {"out of range"}));
  EXPECT_TRUE(holds(error(f32, "[4294967296,4294967296]", "[0,24]"), {"too many elements"}));
  EXPECT_TRUE(holds(error(f32, "[1,1,1,1,1,1,6]", "[0,24]"), {"at most 6"}));
  EXPECT_TRUE(holds(error(f32, "[2,3]", "[24,0]"), {"[24,0]"}));
  EXPECT_TRUE(holds(error(f32, "[2,3]", "[0]"), {"[begin, end]"}));
  EXPECT_TRUE(holds(error(f32, "[2,3]", "[4,28]", 28), {"'w'", "byte 4", "gap", "the header"}));
}

TEST(Safetensors, OverlapsAndKeysThatComeTwiceAreErrors) {
  EXPECT_TRUE(holds(error_in(file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                     R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                                     7)),
                    {"'b' begins at byte 3", "inside a", "ends at 4"}));
  EXPECT_TRUE(holds(error_in(file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                     R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                                     4)),
                    {"'a' twice"}));
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_TRUE(holds(error_in(file_of("{\"__metadata__\":" + deep + "}", 0)), {"nested"}));
}

}  // namespace
}  // namespace gradus::train
