// One connection: reads requests under limits, hands bodies to the queue, writes answers. Includes
// Boost, so only connection.cpp and listener.cpp may include it.
//
// Thread rule: a connection lives on its own strand; Hub is shared and guards itself.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "server/server.h"
#include "server/service.h"

namespace okibi::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kMaxHeadBytes = 16 << 10;
constexpr size_t kChunkBytes = 64 << 10;

inline std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

// Ids tell requests apart in logs; they are no secret.
class RequestIds {
 public:
  RequestIds() : run_(std::random_device{}()) {}
  std::string next() { return fmt::format("req_{:08x}{:010x}", run_, next_++); }

 private:
  const uint32_t run_;
  std::atomic<uint64_t> next_ = 1;
};

class Connection;

// What connections share.
struct Hub {
  Hub(ServerOptions o, Decider& decider)
      : options(std::move(o)),
        service({.keys = options.keys,
                 .shared_caches = options.shared_caches,
                 .max_waiting = options.max_waiting,
                 .max_body_memory = options.max_body_memory},
                decider, metrics),
        bodies(options.max_body_memory) {}

  const ServerOptions options;
  Metrics metrics;
  Service service;
  RequestIds ids;
  ByteBudget bodies;  // the queue's jobs and the connections hold charges
  std::unique_ptr<JobQueue> queue;
  std::atomic<bool> draining = false;

  std::mutex mutex;  // guards connections
  std::condition_variable changed;
  std::set<Connection*> connections;

  bool add(Connection* connection) {
    std::lock_guard lock(mutex);
    if (connections.size() >= options.max_connections) return false;
    connections.insert(connection);
    update_load();
    return true;
  }
  void remove(Connection* connection) {
    std::lock_guard lock(mutex);
    connections.erase(connection);
    update_load();
    changed.notify_all();
  }
  void update_load() {
    metrics.set_load(connections.size(), queue->n_waiting(), queue->n_running());
    metrics.set_body_bytes(bodies.used());
  }
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Hub& hub) : hub_(hub), stream_(std::move(socket)) {}
  ~Connection();

  void start();
  // From any thread: ends the connection between requests, or, with `now`, wherever it is.
  void stop(bool now);

 private:
  using Parser = http::request_parser<http::buffer_body>;

  // There are as many connections as may be: an answer, then the end.
  void turn_away();
  void read_head();
  void on_head(error_code error);
  void take_head();
  // What was read of a body, and its charge.
  void forget_body();
  // Appends a chunk, with room that is charged first: doubled as it fills, but never more than was
  // announced. Says false when the server has no room left.
  bool append_to_body(const char* data, size_t n);
  void refuse_body();
  void send_continue();
  void read_body();
  void on_chunk(error_code error);
  // Says no while the body is still coming, and reads on without keeping it: a client that sends
  // everything before it reads anything would see a broken pipe instead of the answer.
  void answer_early();
  void on_body();
  // A readable socket that has nothing to read was closed by the client. Bytes of a next request
  // end the watch.
  void watch_for_departure();
  void finish(HttpResponse response, bool keep);
  // Writes the answer, then goes on with `next`.
  template <typename Next>
  void send(HttpResponse response, bool keep, Next next);
  void count(int status);
  void close();

  Hub& hub_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{kMaxHeadBytes + kChunkBytes};
  std::optional<Parser> parser_;
  std::vector<char> chunk_ = std::vector<char>(kChunkBytes);
  std::string body_;
  ByteBudget::Charge body_charge_;
  size_t n_body_ = 0;
  HttpHead head_;
  std::string request_id_;
  double started_ = 0;
  std::optional<HttpResponse> pending_;  // decided before the body was read
  std::shared_ptr<std::atomic<bool>> cancel_;
  bool is_answered_ = false, keeps_ = false;  // before the whole body was read; keep-alive then
  bool is_idle_ = false, is_counted_ = false;
};

}  // namespace okibi::server
