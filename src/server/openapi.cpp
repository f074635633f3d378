// The description of what is served, for /openapi.json, and the limits, for /v1/limits. One
// text each.
#include <fmt/format.h>

#include "decide/json_value.h"
#include "server/service.h"
#include "server/wire/body_coding.h"
#include "server/wire/images.h"
#include "server/wire/read_request.h"

namespace okibi::server {

namespace {

// Schemas of requests and answers, as both APIs have them.
constexpr char kSchemas[] = R"json({
  "Text": {"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array"}]},
  "TextOrNull": {"anyOf": [{"$ref": "#/components/schemas/Text"}, {"type": "null"}]},
  "Question": {"oneOf": [
    {"type": "object", "required": ["type"], "properties": {"type": {"const": "noul"},
      "instructions": {"$ref": "#/components/schemas/TextOrNull"},
      "criteria": {"anyOf": [{"type": "null"}, {"type": "object", "additionalProperties": false,
        "properties": {"true": {"$ref": "#/components/schemas/TextOrNull"},
                       "false": {"$ref": "#/components/schemas/TextOrNull"}}}]}}},
    {"type": "object", "required": ["type", "criteria"], "properties": {"type": {"const": "choice"},
      "instructions": {"$ref": "#/components/schemas/TextOrNull"},
      "criteria": {"type": "object", "minProperties": 1, "maxProperties": 255,
        "additionalProperties": {"$ref": "#/components/schemas/TextOrNull"}}}},
    {"type": "object", "required": ["type", "criteria"], "properties": {"type": {"const": "score"},
      "instructions": {"$ref": "#/components/schemas/TextOrNull"},
      "criteria": {"type": "array", "minItems": 1, "maxItems": 10,
        "items": {"$ref": "#/components/schemas/Text"}}}}]},
  "Asset": {"type": "object", "required": ["type"], "properties": {"type": {"const": "image"},
    "format": {"type": "string"}, "data_base64": {"type": "string", "format": "byte"},
    "part": {"type": "string"},
    "sha256": {"type": "string", "pattern": "^(sha256:)?[0-9a-fA-F]{64}$"}}},
  "SystemOneRequest": {"type": "object", "required": ["state", "questions"],
    "additionalProperties": false, "properties": {
      "model": {"type": ["string", "null"]},
      "state": {"$ref": "#/components/schemas/Text"},
      "questions": {"type": "object", "minProperties": 1, "propertyNames": {"minLength": 1},
        "additionalProperties": {"$ref": "#/components/schemas/Question"}},
      "assets": {"type": "object", "minProperties": 1,
        "additionalProperties": {"$ref": "#/components/schemas/Asset"}},
      "images": {"type": "array", "items": {"type": "string"}},
      "stream": {"type": "boolean", "const": false}}},
  "SystemOneResponse": {"type": "object", "required": ["model", "answers", "usage"], "properties": {
    "model": {"type": "string"},
    "answers": {"type": "object", "additionalProperties": {"oneOf": [
      {"type": "object", "required": ["type", "noul"], "properties": {"type": {"const": "noul"},
        "noul": {"type": "number", "minimum": 0, "maximum": 1}}},
      {"type": "object", "required": ["type", "choice", "probabilities", "confidence"],
        "properties": {"type": {"const": "choice"}, "choice": {"type": "string"},
          "probabilities": {"type": "object", "additionalProperties": {"type": "number"}},
          "confidence": {"type": "number"}}},
      {"type": "object", "required": ["type", "score", "legend", "probabilities", "confidence"],
        "properties": {"type": {"const": "score"}, "score": {"type": "number"},
          "legend": {"type": "object"},
          "probabilities": {"type": "object", "additionalProperties": {"type": "number"}},
          "confidence": {"type": "number"}}}]}},
    "usage": {"type": "object", "required": ["input_tokens", "output_tokens"], "properties": {
      "input_tokens": {"type": "integer"}, "output_tokens": {"type": "integer"}}},
    "okibi": {"type": "object"}}},
  "DecisionsQuestion": {"type": "object", "required": ["type", "instructions"], "properties": {
    "type": {"enum": ["predicate", "choice", "score"]}, "name": {"type": ["string", "null"]},
    "instructions": {"anyOf": [{"type": "string", "minLength": 1},
      {"type": "array", "minItems": 1, "items": {"type": "object"}}]},
    "choices": {"type": "array", "minItems": 2, "maxItems": 255, "items": {"type": "object",
      "required": ["value"], "properties": {"value": {"type": ["string", "boolean"]},
        "description": {"type": ["string", "null"]}}}},
    "levels": {"type": "array", "minItems": 1, "maxItems": 255, "items": {"type": "object",
      "required": ["label"], "properties": {"label": {"type": "string"},
        "description": {"type": ["string", "null"]}}}}}},
  "DecisionsRequest": {"type": "object", "required": ["input", "questions"],
    "additionalProperties": false, "properties": {
      "model": {"type": ["string", "null"]},
      "input": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
      "questions": {"type": "array", "minItems": 1, "maxItems": 400,
        "items": {"$ref": "#/components/schemas/DecisionsQuestion"}},
      "prompt_cache_key": {"type": ["string", "null"]},
      "prompt_cache_options": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {
        "mode": {"enum": ["implicit", "explicit", null]}, "ttl": {"type": ["string", "null"]}}}]},
      "safety_identifier": {"type": ["string", "null"]},
      "stream": {"type": "boolean", "const": false}}},
  "DecisionsResponse": {"type": "object", "required": ["model", "answers", "usage"], "properties": {
    "model": {"type": "string"},
    "answers": {"type": "array", "items": {"type": "object", "required": ["type", "name"]}},
    "usage": {"type": "object", "required": ["input_tokens", "input_tokens_details",
      "output_tokens", "output_tokens_details", "total_tokens"]}}},
  "Error": {"type": "object", "required": ["error"], "properties": {
    "error": {"anyOf": [{"type": "string"}, {"type": "object"}]}, "code": {"type": "string"},
    "detail": {"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "object"}]}}}
})json";

constexpr char kErrors[] = R"json(
  "400": {"$ref": "#/components/responses/Error"}, "401": {"$ref": "#/components/responses/Error"},
  "403": {"$ref": "#/components/responses/Error"}, "404": {"$ref": "#/components/responses/Error"},
  "413": {"$ref": "#/components/responses/Error"}, "415": {"$ref": "#/components/responses/Error"},
  "422": {"$ref": "#/components/responses/Error"}, "429": {"$ref": "#/components/responses/Error"},
  "503": {"$ref": "#/components/responses/Error"})json";

constexpr char kParameters[] = R"json([
  {"name": "X-Okibi-Order", "in": "header", "schema": {"enum": ["off", "two", "all"]}},
  {"name": "X-Okibi-Calibration", "in": "header", "schema": {"enum": ["on", "off"]}},
  {"name": "X-Okibi-Detail", "in": "header", "schema": {"enum": ["0", "1"]}}])json";

std::string post(std::string_view id, std::string_view summary, std::string_view request,
                 std::string_view response, bool multipart) {
  const std::string form = multipart ? R"json(, "multipart/form-data": {"schema": {"type": "object",
        "required": ["request"], "properties": {"request": {"type": "string"}}},
        "encoding": {"request": {"contentType": "application/json"}}})json"
                                     : "";
  return fmt::format(
      R"json({{"post": {{"operationId": "{}", "summary": "{}", "parameters": {},
      "requestBody": {{"required": true, "content": {{"application/json": {{"schema": {}}}{}}}}},
      "responses": {{"200": {{"description": "The answers.", "content": {{"application/json":
        {{"schema": {}}}}}}}, {}}}}}}})json",
      id, summary, kParameters, request, form, response, kErrors);
}

std::string get(std::string_view id, std::string_view summary, std::string_view type,
                bool is_open) {
  return fmt::format(
      R"json({{"get": {{"operationId": "{}", "summary": "{}"{}, "responses": {{
      "200": {{"description": "{}", "content": {{"{}": {{"schema": {}}}}}}},
      "401": {{"$ref": "#/components/responses/Error"}},
      "503": {{"$ref": "#/components/responses/Error"}}}}}}}})json",
      id, summary, is_open ? R"(, "security": [])" : "", summary, type,
      type == "application/json" ? R"({"type": "object"})" : R"({"type": "string"})");
}

}  // namespace

std::string openapi_json(const ModelCard& card) {
  const auto schema = [](std::string_view name) {
    return fmt::format(R"({{"$ref": "#/components/schemas/{}"}})", name);
  };
  const std::string either = fmt::format(R"({{"anyOf": [{}, {}]}})", schema("DecisionsRequest"),
                                         schema("SystemOneRequest"));
  const std::string either_response = fmt::format(
      R"({{"anyOf": [{}, {}]}})", schema("DecisionsResponse"), schema("SystemOneResponse"));
  return fmt::format(
      R"json({{"openapi": "3.1.0",
  "info": {{"title": "okibi", "version": "0.1.0", "description": {}}},
  "security": [{{}}, {{"key": []}}],
  "paths": {{
    "/v1/systemone": {},
    "/v1/decisions": {},
    "/v1/models": {},
    "/v1/limits": {},
    "/health": {},
    "/metrics": {},
    "/openapi.json": {}}},
  "components": {{
    "securitySchemes": {{"key": {{"type": "http", "scheme": "bearer"}}}},
    "responses": {{"Error": {{"description": "Why not.", "content": {{"application/json":
      {{"schema": {}}}}}}}}},
    "schemas": {}}}}}
)json",
      decision::quote_json("Typed questions about one state, answered by " + card.name + "."),
      post("systemone", "Answer every question about one state.", schema("SystemOneRequest"),
           schema("SystemOneResponse"), true),
      post("decisions", "The same in OpenAI's form, or with a state in System One's.", either,
           either_response, false),
      get("models", "The models that can be named.", "application/json", false),
      get("limits", "What a request may hold.", "application/json", false),
      get("health", "Whether requests are taken.", "application/json", true),
      get("metrics", "Counters in Prometheus' form.", "text/plain", false),
      get("openapi", "This document.", "application/json", true), schema("Error"), kSchemas);
}

std::string limits_json(const ModelCard& card, const ServiceOptions& options) {
  return fmt::format(
      "{{\"model\": {}, \"context_tokens\": {}, \"body_bytes\": {}, \"json_depth\": {}, "
      "\"json_values\": {}, \"text_bytes_beside_images\": {}, \"images\": {}, \"questions\": {}, "
      "\"options\": {}, \"levels\": {}, \"waiting_requests\": {}, \"all_body_bytes\": {}, "
      "\"reads_images\": {}}}\n",
      decision::quote_json(card.name), card.n_ctx, kMaxBodyBytes, decision::kMaxJsonDepth,
      decision::kMaxJsonValues, kMaxTextBytes, kMaxImages, kMaxQuestions, card.max_options,
      card.max_levels, options.max_waiting, options.max_body_memory, card.has_vision);
}

}  // namespace okibi::server
