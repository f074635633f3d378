#include "server/metrics.h"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace okibi::server {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

namespace {

prometheus::Histogram::BucketBoundaries buckets() {
  return {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};
}

}  // namespace

struct Metrics::State {
  prometheus::Registry registry;
  Family<Counter>& requests = BuildCounter()
                                  .Name("okibi_requests_total")
                                  .Help("Answered requests by route and status.")
                                  .Register(registry);
  Family<Histogram>& seconds = BuildHistogram()
                                   .Name("okibi_request_seconds")
                                   .Help("From a request's head to its answer, by route.")
                                   .Register(registry);
  Family<Counter>& questions =
      BuildCounter().Name("okibi_questions_total").Help("Answered questions.").Register(registry);
  Family<Counter>& tokens = BuildCounter()
                                .Name("okibi_input_tokens_total")
                                .Help("Tokens of states and questions; cached ones again apart.")
                                .Register(registry);
  Family<Counter>& cancelled = BuildCounter()
                                   .Name("okibi_cancelled_total")
                                   .Help("Requests whose client had gone.")
                                   .Register(registry);
  Family<Counter>& uses = BuildCounter()
                              .Name("okibi_reuse_total")
                              .Help("Hits and misses per level of reuse.")
                              .Register(registry);
  Family<Gauge>& load = BuildGauge()
                            .Name("okibi_load")
                            .Help("Open connections, waiting and running requests.")
                            .Register(registry);
  Family<Gauge>& body_bytes = BuildGauge()
                                  .Name("okibi_body_bytes")
                                  .Help("Bytes of all request bodies that are held.")
                                  .Register(registry);

  void count_level(const char* level, const LevelUse& use) {
    uses.Add({{"level", level}, {"result", "hit"}}).Increment(use.hits);
    uses.Add({{"level", level}, {"result", "miss"}}).Increment(use.misses);
  }
};

Metrics::Metrics() : state_(std::make_unique<State>()) {
  set_load(0, 0, 0);
  set_body_bytes(0);
}
Metrics::~Metrics() = default;

void Metrics::count_response(std::string_view route, int status, double seconds) {
  const std::string name(route);
  state_->requests.Add({{"route", name}, {"status", fmt::format("{}", status)}}).Increment();
  state_->seconds.Add({{"route", name}}, buckets()).Observe(seconds);
}

void Metrics::count_answers(const WireRequest& request, const Answers& answers) {
  state_->questions.Add({}).Increment(static_cast<double>(request.questions.size()));
  state_->tokens.Add({{"part", "prefix"}}).Increment(answers.result.n_prefix_tokens);
  state_->tokens.Add({{"part", "suffix"}}).Increment(answers.result.n_suffix_tokens);
  state_->tokens.Add({{"part", "cached"}}).Increment(answers.n_cached_tokens);
  state_->count_level("files", answers.files);
  state_->count_level("views", answers.views);
  state_->count_level("prefixes", answers.prefixes);
  state_->count_level("answers", answers.answers);
}

void Metrics::count_cancelled() {
  state_->cancelled.Add({}).Increment();
}

void Metrics::set_load(size_t n_connections, size_t n_waiting, size_t n_running) {
  state_->load.Add({{"of", "connections"}}).Set(static_cast<double>(n_connections));
  state_->load.Add({{"of", "waiting"}}).Set(static_cast<double>(n_waiting));
  state_->load.Add({{"of", "running"}}).Set(static_cast<double>(n_running));
}

void Metrics::set_body_bytes(uint64_t n) {
  state_->body_bytes.Add({}).Set(static_cast<double>(n));
}

std::string Metrics::text() const {
  return prometheus::TextSerializer().Serialize(state_->registry.Collect());
}

}  // namespace okibi::server
