// Bodies as bytes: content encodings (zstd, gzip) undone under a cap that is checked while
// decoding, multipart/form-data taken apart, base64 and data URLs read strictly. All of it is fed
// by strangers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "okibi/status.h"

namespace okibi::server {

constexpr size_t kMaxBodyBytes = size_t{32} << 20;

// A body without its Content-Encoding. kUnsupported: an encoding that is not offered;
// kResourceExhausted: more than `max_bytes` come out; kBadData: damaged.
Result<std::string> decode_body(std::string_view body, std::string_view content_encoding,
                                size_t max_bytes = kMaxBodyBytes);

// A Content-Type: "multipart/form-data", and its parameter `boundary` (empty when there is none).
struct MediaType {
  std::string name;  // lower case
  std::string boundary;
};
MediaType read_media_type(std::string_view header);

struct Part {
  std::string name, filename, content_type;
  std::string_view body;  // inside the body that was read
};
constexpr size_t kMaxParts = 300;
Result<std::vector<Part>> read_multipart(std::string_view body, std::string_view boundary);

// Standard alphabet, padded, nothing else in between, unused bits zero.
Result<std::string> decode_base64(std::string_view text);

}  // namespace okibi::server
