// The recorded requests of official clients in golden/wire: NAME.http as sent, NAME.json as meant.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace okibi::testing {

struct WireCase {
  std::string name, method, path, body;
  std::map<std::string, std::string> headers;  // names in lower case
  nlohmann::ordered_json meant;
};

inline std::string read_whole(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline WireCase read_wire_case(const std::filesystem::path& json) {
  WireCase result{.name = json.stem().string()};
  result.meant = nlohmann::ordered_json::parse(read_whole(json));
  std::filesystem::path http = json;
  const std::string raw = read_whole(http.replace_extension(".http"));
  const size_t end = raw.find("\r\n\r\n");
  size_t at = raw.find("\r\n");
  const std::string line = raw.substr(0, at);
  result.method = line.substr(0, line.find(' '));
  result.path = line.substr(line.find(' ') + 1, line.rfind(' ') - line.find(' ') - 1);
  while (at < end) {
    const size_t next = raw.find("\r\n", at + 2);
    const std::string header = raw.substr(at + 2, next - at - 2);
    std::string name = header.substr(0, header.find(':'));
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    result.headers[name] = header.substr(header.find(':') + 2);
    at = next;
  }
  result.body = raw.substr(end + 4);
  return result;
}

inline std::vector<WireCase> all_wire_cases() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(OKIBI_GOLDEN_DIR) + "/wire")) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<WireCase> cases;
  for (const auto& path : paths) cases.push_back(read_wire_case(path));
  return cases;
}

}  // namespace okibi::testing
