#include "train/strict_json.h"

#include <limits>
#include <set>
#include <vector>

#include "core/check.h"
#include "train/mapped_file.h"

namespace gradus::train {

using nlohmann::json;

json parse_json(std::string_view text, const std::string& path) {
  constexpr int kDeepest = 64;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto look = [&](int depth, json::parse_event_t event, json& value) {
    check(depth <= kDeepest, "", path, " is nested more than ", kDeepest, " levels deep");
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      check(keys.back().insert(key).second, "", path, " has the key '", key, "' twice");
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), look);
  } catch (const json::exception& error) {
    fail("", path, " is not JSON: ", error.what());
  }
}

int64_t whole_number(const json& j, const char* what) {
  check(j.is_number_integer(), "", what, " must be a whole number, got ", j.dump());
  const bool too_large =
      j.is_number_unsigned() && j.get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max());
  check(!too_large && j.get<int64_t>() >= 0, "", what, " is out of range: ", j.dump());
  return j.get<int64_t>();
}

std::string read_file(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace gradus::train
