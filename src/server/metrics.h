// Counters for /metrics, in Prometheus' text form. Any thread may count.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/decider.h"

namespace okibi::server {

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  void count_response(std::string_view route, int status, double seconds);
  void count_answers(const WireRequest& request, const Answers& answers);
  void count_cancelled();
  void set_load(size_t n_connections, size_t n_waiting, size_t n_running);
  void set_body_bytes(uint64_t n);
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace okibi::server
