// The HTTP server: listens, reads requests under limits, hands bodies to workers, writes answers.
// Boost stays behind this header. What is said to a request is decided in service.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "okibi/status.h"
#include "server/api_keys.h"
#include "server/decider.h"

namespace okibi::server {

struct RequestLog {
  std::string request_id, method, path;
  int status = 0;
  double seconds = 0;
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any free one
  ApiKeys keys;          // must not be empty where the host is no loopback address
  bool shared_caches = false;
  size_t n_workers = 4;     // requests that run at once
  size_t max_waiting = 64;  // requests that wait beside them; more get 429
  size_t max_connections = 256;
  // Bytes that the bodies of all requests may take together, arriving, waiting or running; what
  // comes beyond gets 429. At least kMaxBodyBytes, or the largest bodies could never be read.
  uint64_t max_body_memory = uint64_t{256} << 20;
  double idle_seconds = 75;                           // without a byte, between and inside requests
  std::function<void(const RequestLog&)> on_request;  // from the I/O threads
};

class Server {
 public:
  // Listens when it returns. The decider outlives the server.
  static Result<std::unique_ptr<Server>> start(ServerOptions options, Decider& decider);
  ~Server();  // as drain(0)
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;
  std::string address() const;  // "127.0.0.1:8080"
  // Takes no more connections and requests, lets the running ones finish for at most this long,
  // then cancels them. Once only.
  void drain(double seconds);

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace okibi::server
