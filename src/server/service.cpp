#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "decide/json_value.h"
#include "server/wire/read_request.h"
#include "server/write_response.h"

namespace okibi::server {

namespace {

struct Route {
  std::string_view path;
  bool is_post;
  bool is_open;  // needs no key
};
constexpr std::array kRoutes = {
    Route{"/v1/systemone", true, false}, Route{"/v1/decisions", true, false},
    Route{"/v1/models", false, false},   Route{"/v1/limits", false, false},
    Route{"/health", false, true},       Route{"/metrics", false, false},
    Route{"/openapi.json", false, true},
};

const Route* find_route(std::string_view path) {
  const auto found = std::find_if(kRoutes.begin(), kRoutes.end(),
                                  [&](const Route& route) { return route.path == path; });
  return found == kRoutes.end() ? nullptr : &*found;
}

Api api_of(std::string_view path) {
  return path == "/v1/decisions" ? Api::kDecisions : Api::kSystemOne;
}

// Pages of other origins may not use a server that asks for no key.
bool is_foreign_origin(std::string_view origin) {
  if (origin.empty()) return false;
  const size_t at = origin.find("://");
  const std::string_view host = at == std::string_view::npos ? "" : origin.substr(at + 3);
  for (std::string_view own : {"localhost", "127.0.0.1", "[::1]"}) {
    if (host == own || (host.starts_with(own) && host.substr(own.size()).starts_with(':'))) {
      return false;
    }
  }
  return true;
}

ApiError of_status(const Status& status) {
  switch (status.code()) {
    case StatusCode::kNotFound:
      return make_error(404, "IMAGE_NOT_FOUND", status.message());
    case StatusCode::kResourceExhausted:
      return make_error(413, "CONTEXT_EXCEEDED", status.message());
    case StatusCode::kUnavailable:
      return make_error(503, "UNAVAILABLE", status.message());
    case StatusCode::kCancelled:
      return make_error(499, "CANCELLED", status.message());
    case StatusCode::kUnsupported:
      return make_error(422, "UNSUPPORTED", status.message());
    default:
      return make_error(422, "INVALID_REQUEST", status.message());
  }
}

std::string server_timing(double queue_ms, double parse_ms, const Answers& answers,
                          double total_ms) {
  const DecisionTiming& t = answers.result.timing;
  std::string out = fmt::format("queue;dur={:.2f}, parse;dur={:.2f}", queue_ms, parse_ms);
  const auto add = [&](const char* name, double ms) {
    if (ms > 0) out += fmt::format(", {};dur={:.2f}", name, ms);
  };
  add("decode", answers.decode_ms);
  add("encode", answers.encode_ms);
  add("tokenize", t.tokenize_ms);
  add("prefill", t.prefix_ms);
  add("suffix", t.suffix_ms);
  return out + fmt::format(", total;dur={:.2f}", total_ms);
}

std::string cache_header(const Answers& answers) {
  const auto level = [](const char* name, const LevelUse& use) {
    return fmt::format("{};hits={};misses={}", name, use.hits, use.misses);
  };
  return level("files", answers.files) + ", " + level("views", answers.views) + ", " +
         level("prefixes", answers.prefixes) + ", " + level("answers", answers.answers) +
         fmt::format(", tokens;cached={}", answers.n_cached_tokens);
}

}  // namespace

std::string_view HttpHead::header(std::string_view name) const {
  const auto found = headers.find(std::string(name));
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

Service::Service(ServiceOptions options, Decider& decider, Metrics& metrics)
    : options_(std::move(options)), decider_(decider), metrics_(metrics) {}

std::string_view Service::route_of(std::string_view path) {
  const Route* route = find_route(path);
  return route != nullptr ? route->path : "other";
}

std::optional<std::string> Service::scope_of(const HttpHead& head) const {
  if (options_.keys.empty()) return "";
  std::optional<std::string> scope = options_.keys.scope_of(head.header("authorization"));
  if (scope && options_.shared_caches) scope = "";
  return scope;
}

std::optional<HttpResponse> Service::answer_at_once(const HttpHead& head) const {
  const Route* route = find_route(head.path);
  if (route == nullptr) {
    return refuse(head, 404, "NOT_FOUND",
                  "there is nothing at this path; /openapi.json lists what is served");
  }
  if (!route->is_open && !scope_of(head)) {
    HttpResponse response =
        refuse(head, 401, "UNAUTHENTICATED",
               head.header("authorization").empty()
                   ? "this server wants a key: Authorization: Bearer KEY"
                   : "the key in Authorization is not known here; expected Bearer KEY");
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
    return response;
  }
  const bool is_get = head.method == "GET" || head.method == "HEAD";
  if (route->is_post ? head.method != "POST" : !is_get) {
    HttpResponse response =
        refuse(head, 405, "METHOD_NOT_ALLOWED",
               fmt::format("{} takes {}", route->path, route->is_post ? "POST" : "GET"));
    response.headers.emplace_back("Allow", route->is_post ? "POST" : "GET, HEAD");
    return response;
  }
  if (!route->is_post) return get(head);
  if (options_.keys.empty() && is_foreign_origin(head.header("origin"))) {
    return refuse(head, 403, "FOREIGN_ORIGIN",
                  "web pages of other origins may not use a server that asks for no key");
  }
  if (draining_) {
    HttpResponse response = refuse(head, 503, "DRAINING", "the server is shutting down");
    response.headers.emplace_back("Retry-After", "5");
    return response;
  }
  if (queue_ != nullptr && queue_->is_full()) return refuse_full(head);
  return std::nullopt;
}

HttpResponse Service::get(const HttpHead& head) const {
  if (head.path == "/health") return health();
  if (head.path == "/v1/models") return {.body = models_body(decider_.card())};
  if (head.path == "/v1/limits") {
    return {.body = limits_json(decider_.card(), options_)};
  }
  if (head.path == "/openapi.json") return {.body = openapi_json(decider_.card())};
  return {.content_type = "text/plain; version=0.0.4", .body = metrics_.text()};
}

HttpResponse Service::health() const {
  const size_t n_waiting = queue_ != nullptr ? queue_->n_waiting() : 0;
  const size_t n_running = queue_ != nullptr ? queue_->n_running() : 0;
  return {.status = draining_ ? 503 : 200,
          .body = fmt::format(
              "{{\"status\": \"{}\", \"model\": {}, \"running\": {}, \"waiting\": {}}}\n",
              draining_ ? "draining" : "ok", decision::quote_json(decider_.card().name), n_running,
              n_waiting)};
}

HttpResponse Service::error_response(const ApiError& error, Api api) const {
  return {.status = error.status, .body = error_body(error, api)};
}

HttpResponse Service::refuse(const HttpHead& head, int status, std::string code,
                             std::string message) const {
  return error_response(make_error(status, std::move(code), std::move(message)), api_of(head.path));
}

HttpResponse Service::refuse_full(const HttpHead& head) const {
  HttpResponse response =
      refuse(head, 429, "QUEUE_FULL", "as many requests as may wait are waiting already");
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

HttpResponse Service::refuse_memory(const HttpHead& head) const {
  HttpResponse response =
      refuse(head, 429, "BODIES_FULL",
             fmt::format("the bodies of other requests leave no room for this one; together they "
                         "may take {} bytes",
                         options_.max_body_memory));
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

std::optional<ApiError> Service::read_options(const HttpHead& head, JobOptions* options) const {
  const std::string_view order = head.header("x-okibi-order");
  const std::string_view calibration = head.header("x-okibi-calibration");
  const std::string_view detail = head.header("x-okibi-detail");
  if (order == "two") options->order = OptionOrder::kTwo;
  if (order == "all") options->order = OptionOrder::kAll;
  if (!order.empty() && order != "off" && options->order == OptionOrder::kOff) {
    return make_error(422, "INVALID_HEADER", "X-Okibi-Order is off, two or all");
  }
  if (!calibration.empty() && calibration != "on" && calibration != "off") {
    return make_error(422, "INVALID_HEADER", "X-Okibi-Calibration is on or off");
  }
  if (!detail.empty() && detail != "0" && detail != "1") {
    return make_error(422, "INVALID_HEADER", "X-Okibi-Detail is 0 or 1");
  }
  options->calibrate = calibration != "off";
  options->want_detail = detail == "1";
  return std::nullopt;
}

bool Service::serves_model(std::string_view name) const {
  return name.empty() || name == decider_.card().name || name == "jev-latest" ||
         name == "jev-preview";
}

HttpResponse Service::run(const Job& job) const {
  const double start = seconds_now();
  JobOptions options{.scope = scope_of(job.head).value_or(""), .cancel = job.cancel.get()};
  if (*job.cancel) return refuse(job.head, 499, "CANCELLED", "the client has gone");
  const Api path = api_of(job.head.path);
  if (const std::optional<ApiError> error = read_options(job.head, &options)) {
    return error_response(*error, path);
  }
  WireRequest request;
  const ApiError error = read_request({.path = path,
                                       .content_type = job.head.header("content-type"),
                                       .content_encoding = job.head.header("content-encoding"),
                                       .bytes = job.body},
                                      &request);
  if (error.status != 0) return error_response(error, request.api);
  if (!serves_model(request.model)) {
    return error_response(
        make_error(400, "MODEL_NOT_FOUND",
                   fmt::format("the model {} is not served here; served are {} and its alias "
                               "\"jev-latest\"",
                               decision::quote_for_message(request.model),
                               decision::quote_for_message(decider_.card().name))),
        request.api);
  }
  // No scope of a key holds the separator, so no two pairs of scope and cache key meet.
  if (!request.cache_key.empty()) options.scope += "/" + request.cache_key;
  return answer(job, request, options, (seconds_now() - start) * 1e3);
}

HttpResponse Service::answer(const Job& job, const WireRequest& request, const JobOptions& options,
                             double parse_ms) const {
  const double start = seconds_now();
  const Result<Answers> answers = decider_.decide(request, options);
  if (!answers.ok()) {
    if (answers.status().code() == StatusCode::kCancelled) metrics_.count_cancelled();
    HttpResponse response = error_response(of_status(answers.status()), request.api);
    if (response.status == 503) response.headers.emplace_back("Retry-After", "1");
    return response;
  }
  metrics_.count_answers(request, *answers);
  const double now = seconds_now();
  const double queue_ms = (start - job.arrived) * 1e3 - parse_ms;
  HttpResponse response;
  response.body = response_body(request, *answers, decider_.card(), options.want_detail);
  response.headers = {{"Server-Timing", server_timing(std::max(queue_ms, 0.0), parse_ms, *answers,
                                                      (now - job.arrived) * 1e3)},
                      {"X-Okibi-Cache", cache_header(*answers)},
                      {"X-Okibi-Order", std::string(order_name(answers->order))},
                      {"X-Okibi-Calibration", answers->is_calibrated ? "on" : "off"}};
  return response;
}

}  // namespace okibi::server
