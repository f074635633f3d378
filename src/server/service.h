// What the server says to each request, without a socket in sight: routes, keys, limits, headers.
// answer_at_once runs on the I/O threads and never waits; run is for the workers.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api_keys.h"
#include "server/byte_budget.h"
#include "server/decider.h"
#include "server/job_queue.h"
#include "server/metrics.h"
#include "server/wire/api_error.h"

namespace okibi::server {

struct HttpHead {
  std::string method, path;
  std::map<std::string, std::string> headers;  // names in lower case

  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

struct ServiceOptions {
  ApiKeys keys;                // empty: no key is asked for
  bool shared_caches = false;  // one scope for all keys
  size_t max_waiting = 64;     // only for /v1/limits, as what follows
  uint64_t max_body_memory = 0;
};

// One request on its way through the queue.
struct Job {
  HttpHead head;
  std::string request_id;
  std::string body;
  ByteBudget::Charge body_charge;  // for `body`
  double arrived = 0;              // seconds_now() when the body was complete
  std::shared_ptr<std::atomic<bool>> cancel = std::make_shared<std::atomic<bool>>(false);
};

class Service {
 public:
  Service(ServiceOptions options, Decider& decider, Metrics& metrics);

  void set_queue(const JobQueue* queue) { queue_ = queue; }
  void set_draining() { draining_ = true; }

  // The answer to what needs no body and no model, or to what must not get that far. Nothing: read
  // the body and `run`.
  std::optional<HttpResponse> answer_at_once(const HttpHead& head) const;
  HttpResponse run(const Job& job) const;

  HttpResponse refuse(const HttpHead& head, int status, std::string code,
                      std::string message) const;
  HttpResponse refuse_full(const HttpHead& head) const;
  HttpResponse refuse_memory(const HttpHead& head) const;
  static std::string_view route_of(std::string_view path);  // for metrics; "other" when unknown

 private:
  std::optional<std::string> scope_of(const HttpHead& head) const;
  HttpResponse get(const HttpHead& head) const;
  HttpResponse health() const;
  std::optional<ApiError> read_options(const HttpHead& head, JobOptions* options) const;
  HttpResponse error_response(const ApiError& error, Api api) const;
  HttpResponse answer(const Job& job, const WireRequest& request, const JobOptions& options,
                      double parse_ms) const;
  bool serves_model(std::string_view name) const;

  const ServiceOptions options_;
  Decider& decider_;
  Metrics& metrics_;
  const JobQueue* queue_ = nullptr;
  std::atomic<bool> draining_ = false;
};

// The document of /openapi.json.
std::string openapi_json(const ModelCard& card);
std::string limits_json(const ModelCard& card, const ServiceOptions& options);

}  // namespace okibi::server
