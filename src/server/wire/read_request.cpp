#include "server/wire/read_request.h"

#include <fmt/format.h>

#include <utility>

namespace okibi::server {

namespace {

using decision::JsonValue;

ApiError of_decoding(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnsupported:
      return make_error(415, "UNSUPPORTED_ENCODING", status.message());
    case StatusCode::kResourceExhausted:
      return make_error(413, "BODY_TOO_LARGE", status.message());
    default:
      return make_error(400, "INVALID_BODY", status.message());
  }
}

}  // namespace

ApiError read_request(const WireBody& body, WireRequest* request) {
  request->api = body.path;
  const MediaType media = read_media_type(body.content_type);
  const bool is_multipart = media.name == "multipart/form-data";
  if (!is_multipart && media.name != "application/json") {
    return make_error(415, "UNSUPPORTED_MEDIA_TYPE",
                      "Content-Type must be application/json or multipart/form-data");
  }
  const Result<std::string> decoded = decode_body(body.bytes, body.content_encoding);
  if (!decoded.ok()) return of_decoding(decoded.status());
  std::string_view json_text = *decoded;
  std::vector<Part> parts;
  if (is_multipart) {
    Result<std::vector<Part>> read = read_multipart(*decoded, media.boundary);
    if (!read.ok()) return of_decoding(read.status());
    parts = std::move(read).value();
    if (parts.empty() || parts[0].name != "request") {
      return make_error(400, "INVALID_BODY",
                        "the first part of a multipart body is the JSON, named \"request\"");
    }
    json_text = parts[0].body;
    parts.erase(parts.begin());
  }
  const Result<JsonValue> json = decision::parse_json(json_text);
  if (!json.ok()) return make_error(400, "INVALID_JSON", json.status().message());
  if (!json->is(JsonValue::Kind::kObject)) {
    return issue_error(
        {"body"},
        fmt::format("the body must be a JSON object, not {}", decision::kind_name(json->kind)),
        "model_attributes_type");
  }
  if (body.path == Api::kDecisions && json->find("state") == nullptr) {
    return read_decisions(*json, request);
  }
  request->api = Api::kSystemOne;
  return read_systemone(*json, is_multipart ? &parts : nullptr, request);
}

}  // namespace okibi::server
