// Fuzzes what undoes a body's wrapping: multipart, zstd, gzip, base64. The first byte chooses. Any
// bytes give parts that lie inside the body, or an error in words.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/wire/body_coding.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace okibi::server;
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 4 == 0) {
    const size_t line = body.find('\n');
    if (line == std::string_view::npos) return 0;
    const std::string_view text = body.substr(line + 1);
    const auto parts = read_multipart(text, read_media_type(body.substr(0, line)).boundary);
    if (!parts.ok() && parts.status().message().empty()) std::abort();
    if (!parts.ok()) return 0;
    if (parts->size() > kMaxParts) std::abort();
    for (const Part& part : *parts) {
      if (part.name.empty()) std::abort();
      if (part.body.empty()) continue;
      if (part.body.data() < text.data()) std::abort();
      if (part.body.data() + part.body.size() > text.data() + text.size()) std::abort();
    }
    return 0;
  }
  constexpr size_t kCap = 1 << 20;
  const auto out = data[0] % 4 == 1   ? decode_body(body, "zstd", kCap)
                   : data[0] % 4 == 2 ? decode_body(body, "gzip", kCap)
                                      : decode_base64(body);
  if (!out.ok() && out.status().message().empty()) std::abort();
  if (out.ok() && data[0] % 4 != 3 && out->size() > kCap) std::abort();
  return 0;
}
