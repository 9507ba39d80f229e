#pragma once
// JSON from files that others wrote. Two things that JSON allows are errors here: an object with the
// same key twice (which one counts?), and nesting so deep that a program which walks it needs a large
// stack.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace gradus::train {

/// Error, beginning with `path`, when `text` is no JSON, has a key twice or is nested too deeply.
nlohmann::json parse_json(std::string_view text, const std::string& path);

/// A whole number ≥ 0. Error that calls it `what` when it is none.
int64_t whole_number(const nlohmann::json& value, const char* what);

/// The content of a file. Error with the path when it cannot be read.
std::string read_file(const std::string& path);

}  // namespace gradus::train
