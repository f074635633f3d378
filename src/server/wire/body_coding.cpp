#include "server/wire/body_coding.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

namespace okibi::server {

namespace {

constexpr size_t kChunk = 256 << 10;
// Windows beyond this are asked for by no client; they would be allocated before a byte is seen.
constexpr int kMaxWindowLog = 23;

Status too_large(size_t max_bytes) {
  return resource_exhausted(
      fmt::format("the body is larger than {} bytes once decoded", max_bytes));
}

Result<std::string> decode_zstd(std::string_view body, size_t max_bytes) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                   &ZSTD_freeDCtx);
  if (context == nullptr) return resource_exhausted("no memory for decoding zstd");
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  std::string out, chunk(kChunk, '\0');
  ZSTD_inBuffer in{body.data(), body.size(), 0};
  size_t left = 1;  // of the frame; 0 at its end
  while (true) {
    ZSTD_outBuffer to{chunk.data(), chunk.size(), 0};
    const size_t before = in.pos;
    left = ZSTD_decompressStream(context.get(), &to, &in);
    if (ZSTD_isError(left)) return bad_data("the body is not valid zstd");
    if (out.size() + to.pos > max_bytes) return too_large(max_bytes);
    out.append(chunk.data(), to.pos);
    if (in.pos == in.size && left == 0) return out;
    const bool is_stuck = in.pos == before && to.pos == 0;
    if (is_stuck || (in.pos == in.size && to.pos < to.size)) {
      return bad_data("the zstd body ends in the middle of a frame");
    }
  }
}

struct Inflate {
  z_stream stream{};
  bool is_open = false;
  ~Inflate() {
    if (is_open) inflateEnd(&stream);
  }
};

Result<std::string> decode_gzip(std::string_view body, size_t max_bytes) {
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  Inflate inflate_state;
  z_stream& stream = inflate_state.stream;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) return resource_exhausted("no memory for gzip");
  inflate_state.is_open = true;
  std::string out, chunk(kChunk, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data()));
  stream.avail_in = static_cast<uInt>(std::min<size_t>(body.size(), UINT32_MAX));
  while (true) {
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    const int code = inflate(&stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END) return bad_data("the body is not valid gzip");
    const size_t n = chunk.size() - stream.avail_out;
    if (out.size() + n > max_bytes) return too_large(max_bytes);
    out.append(chunk.data(), n);
    if (code == Z_STREAM_END) {
      if (stream.avail_in > 0) return bad_data("bytes follow the end of the gzip body");
      return out;
    }
    if (stream.avail_in == 0 && n < chunk.size()) return bad_data("the gzip body ends too early");
  }
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The value of a parameter ("; name=value" or "; name=\"value\"") after a header's first word.
std::string parameter(std::string_view header, std::string_view name) {
  size_t at = header.find(';');
  while (at != std::string_view::npos) {
    header.remove_prefix(at + 1);
    const size_t equals = header.find('=');
    if (equals == std::string_view::npos) return "";
    const bool is_it = lower(trimmed(header.substr(0, equals))) == name;
    header.remove_prefix(equals + 1);
    header = trimmed(header);
    std::string value;
    if (header.starts_with('"')) {
      size_t i = 1;
      for (; i < header.size() && header[i] != '"'; ++i) {
        if (header[i] == '\\' && i + 1 < header.size()) ++i;
        value += header[i];
      }
      header.remove_prefix(std::min(i + 1, header.size()));
    } else {
      value = trimmed(header.substr(0, header.find(';')));
    }
    if (is_it) return value;
    at = header.find(';');
  }
  return "";
}

constexpr size_t kMaxPartHeaderBytes = 4096;

Status read_part_headers(std::string_view headers, Part* part) {
  while (!headers.empty()) {
    const size_t end = headers.find("\r\n");
    const std::string_view line = headers.substr(0, end);
    headers.remove_prefix(end == std::string_view::npos ? headers.size() : end + 2);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) {
      return bad_data("a part of the multipart body has a header line without a colon");
    }
    const std::string name = lower(line.substr(0, colon));
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (name == "content-disposition") {
      if (lower(trimmed(value.substr(0, value.find(';')))) != "form-data") {
        return bad_data("a part of the multipart body is no form-data");
      }
      part->name = parameter(value, "name");
      part->filename = parameter(value, "filename");
    } else if (name == "content-type") {
      part->content_type = lower(trimmed(value.substr(0, value.find(';'))));
    } else if (name == "content-transfer-encoding" && lower(value) != "binary" &&
               lower(value) != "8bit" && lower(value) != "7bit") {
      return bad_data("a part of the multipart body has a transfer encoding; send plain bytes");
    }
  }
  if (part->name.empty()) return bad_data("a part of the multipart body has no name");
  return ok_status();
}

}  // namespace

Result<std::string> decode_body(std::string_view body, std::string_view content_encoding,
                                size_t max_bytes) {
  const std::string coding = lower(trimmed(content_encoding));
  if (coding.empty() || coding == "identity") {
    if (body.size() > max_bytes) return too_large(max_bytes);
    return std::string(body);
  }
  if (coding == "zstd") return decode_zstd(body, max_bytes);
  if (coding == "gzip" || coding == "x-gzip") return decode_gzip(body, max_bytes);
  return unsupported("Content-Encoding may be zstd, gzip or absent here");
}

MediaType read_media_type(std::string_view header) {
  return {.name = lower(trimmed(header.substr(0, header.find(';')))),
          .boundary = parameter(header, "boundary")};
}

Result<std::vector<Part>> read_multipart(std::string_view body, std::string_view boundary) {
  if (boundary.empty() || boundary.size() > 70) {
    return bad_data("multipart/form-data needs a boundary of 1 to 70 characters");
  }
  const std::string line = "--" + std::string(boundary);
  const std::string next = "\r\n" + line;
  size_t at = 0;
  if (!body.starts_with(line)) {
    at = body.find(next);
    if (at == std::string_view::npos) return bad_data("the multipart body lacks its boundary");
    at += 2;
  }
  at += line.size();
  std::vector<Part> parts;
  while (!body.substr(at).starts_with("--")) {
    while (at < body.size() && (body[at] == ' ' || body[at] == '\t')) ++at;
    if (!body.substr(at).starts_with("\r\n")) {
      return bad_data("a boundary of the multipart body is not followed by a line end");
    }
    if (parts.size() == kMaxParts) {
      return bad_data(fmt::format("the multipart body has more than {} parts", kMaxParts));
    }
    // The line end before the headers stays, so that a part without any has its blank line too.
    const size_t end = body.substr(at, kMaxPartHeaderBytes).find("\r\n\r\n");
    if (end == std::string_view::npos) {
      return bad_data("the headers of a part of the multipart body do not end");
    }
    Part part;
    const std::string_view headers = end == 0 ? "" : body.substr(at + 2, end - 2);
    OKIBI_RETURN_IF_ERROR(read_part_headers(headers, &part));
    const size_t first = at + end + 4;
    // A part without a byte is followed by the boundary at once.
    const size_t close = body.find(next, first - 2);
    if (close == std::string_view::npos) return bad_data("the multipart body ends too early");
    part.body = close < first ? "" : body.substr(first, close - first);
    parts.push_back(std::move(part));
    at = close + next.size();
  }
  return parts;
}

Result<std::string> decode_base64(std::string_view text) {
  static constexpr auto kValues = [] {
    std::array<int8_t, 256> values{};
    values.fill(-1);
    const char* letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int i = 0; i < 64; ++i) values[static_cast<unsigned char>(letters[i])] = i;
    return values;
  }();
  if (text.size() % 4 != 0) return bad_data("base64 has a length that is a multiple of 4");
  size_t n_pad = 0;
  while (n_pad < 2 && n_pad < text.size() && text[text.size() - 1 - n_pad] == '=') ++n_pad;
  const size_t n_letters = text.size() - n_pad;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  for (size_t i = 0; i < n_letters; ++i) {
    const int value = kValues[static_cast<unsigned char>(text[i])];
    if (value < 0) {
      return bad_data(fmt::format("character {} of the base64 text is none of its alphabet", i));
    }
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (i % 4 == 3) {
      out += static_cast<char>(bits >> 16);
      out += static_cast<char>(bits >> 8);
      out += static_cast<char>(bits);
      bits = 0;
    }
  }
  if (n_pad == 2) {
    if ((bits & 0xf) != 0) return bad_data("the base64 text ends in bits that belong to no byte");
    out += static_cast<char>(bits >> 4);
  } else if (n_pad == 1) {
    if ((bits & 0x3) != 0) return bad_data("the base64 text ends in bits that belong to no byte");
    out += static_cast<char>(bits >> 10);
    out += static_cast<char>(bits >> 2);
  }
  return out;
}

}  // namespace okibi::server
