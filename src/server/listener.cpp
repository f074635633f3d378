// The sockets: one strand per connection on a few I/O threads that never wait for the engine. The
// only file of the server that includes Boost.
#include <fmt/format.h>

#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "server/server.h"
#include "server/service.h"
#include "server/wire/body_coding.h"

namespace okibi::server {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kIoThreads = 2;
constexpr size_t kMaxHeadBytes = 16 << 10;
constexpr size_t kChunkBytes = 64 << 10;
// A body that was refused is read on, but not for ever.
constexpr size_t kMostDiscarded = size_t{128} << 20;

std::chrono::milliseconds milliseconds(double seconds) {
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
  ~Connection() {
    if (is_counted_) hub_.remove(this);
  }

  void start() {
    is_counted_ = hub_.add(this);
    if (!is_counted_) return;  // closes
    asio::dispatch(stream_.get_executor(), [self = shared_from_this()] { self->read_head(); });
  }

  // From any thread: ends the connection between requests, or, with `now`, wherever it is.
  void stop(bool now) {
    asio::post(stream_.get_executor(), [self = shared_from_this(), now] {
      if (now && self->cancel_) *self->cancel_ = true;
      if (self->is_idle_ || now) self->close();
    });
  }

 private:
  using Parser = http::request_parser<http::buffer_body>;

  void read_head() {
    if (hub_.draining) return close();
    parser_.emplace();
    parser_->header_limit(kMaxHeadBytes);
    parser_->body_limit(boost::none);
    forget_body();
    n_body_ = 0;
    pending_.reset();
    is_answered_ = false;
    is_idle_ = true;
    stream_.expires_after(milliseconds(hub_.options.idle_seconds));
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code error, size_t) { self->on_head(error); });
  }

  void on_head(error_code error) {
    is_idle_ = false;
    started_ = seconds_now();
    request_id_ = hub_.ids.next();
    head_ = {};
    // Success has the system's category too.
    const bool is_gone = error == http::error::end_of_stream || error == beast::error::timeout ||
                         error.category() == asio::error::get_system_category();
    if (error && is_gone) return close();
    if (error) {
      const bool is_long = error == http::error::header_limit;
      return finish(hub_.service.refuse(
                        head_, is_long ? 431 : 400, is_long ? "HEAD_TOO_LARGE" : "INVALID_HTTP",
                        is_long ? "the head of the request is too long" : "this is not HTTP/1.1"),
                    /*keep=*/false);
    }
    take_head();
    pending_ = hub_.service.answer_at_once(head_);
    const uint64_t announced = parser_->content_length().value_or(0);
    if (announced > kMaxBodyBytes) refuse_body();
    if (!pending_ && announced > hub_.bodies.free()) {
      pending_ = hub_.service.refuse_memory(head_);
    }
    if (parser_->is_done()) return on_body();
    const bool is_awaited = !head_.header("expect").empty();
    if (pending_ && is_awaited) return finish(*std::move(pending_), /*keep=*/false);
    if (pending_) return answer_early();
    if (is_awaited) return send_continue();
    read_body();
  }

  void take_head() {
    const auto& message = parser_->get();
    head_.method = std::string(message.method_string());
    const std::string_view target(message.target().data(), message.target().size());
    head_.path = std::string(target.substr(0, target.find('?')));
    for (const auto& field : message) {
      std::string name(field.name_string());
      for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
      std::string& value = head_.headers[name];
      if (!value.empty()) value += ", ";
      value += std::string(field.value());
    }
  }

  // What was read of a body, and its charge.
  void forget_body() {
    body_ = {};
    body_charge_ = {};
  }

  // Appends a chunk, with room that is charged first: doubled as it fills, but never more than was
  // announced. Says false when the server has no room left.
  bool append_to_body(const char* data, size_t n) {
    const size_t needed = body_.size() + n;
    if (needed > body_.capacity()) {
      const size_t announced = parser_->content_length().value_or(kMaxBodyBytes);
      const size_t room = std::max(needed, std::min(2 * body_.capacity() + n, announced));
      if (!body_charge_.try_grow(hub_.bodies, room - body_.capacity())) return false;
      body_.reserve(room);
    }
    body_.append(data, n);
    return true;
  }

  void refuse_body() {
    if (pending_) return;
    pending_ = hub_.service.refuse(
        head_, 413, "BODY_TOO_LARGE",
        fmt::format("a body may have {} bytes, compressed and decoded", kMaxBodyBytes));
  }

  void send_continue() {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(kContinue),
                      [self = shared_from_this()](error_code error, size_t) {
                        if (error) return self->close();
                        self->read_body();
                      });
  }

  void read_body() {
    if (parser_->is_done()) return on_body();
    // Beast reads as much as the buffer has room for, and it grows by 512 bytes only.
    buffer_.reserve(kChunkBytes);
    parser_->get().body().data = chunk_.data();
    parser_->get().body().size = chunk_.size();
    parser_->get().body().more = true;
    stream_.expires_after(milliseconds(hub_.options.idle_seconds));
    http::async_read_some(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code error, size_t) { self->on_chunk(error); });
  }

  void on_chunk(error_code error) {
    if (error == http::error::need_buffer) error = {};
    if (error) {
      if (error.category() == asio::error::get_system_category() ||
          error == beast::error::timeout || error == http::error::partial_message ||
          error == http::error::end_of_stream || is_answered_) {
        return close();
      }
      return finish(hub_.service.refuse(head_, 400, "INVALID_HTTP", "the body is not framed well"),
                    /*keep=*/false);
    }
    const size_t n = chunk_.size() - parser_->get().body().size;
    n_body_ += n;
    if (is_answered_) return n_body_ > kMostDiscarded ? close() : read_body();
    if (n_body_ > kMaxBodyBytes) {
      refuse_body();
    } else if (!append_to_body(chunk_.data(), n)) {
      pending_ = hub_.service.refuse_memory(head_);
    }
    if (pending_) return answer_early();
    read_body();
  }

  // Says no while the body is still coming, and reads on without keeping it: a client that sends
  // everything before it reads anything would see a broken pipe instead of the answer.
  void answer_early() {
    forget_body();
    is_answered_ = true;
    keeps_ = parser_->get().keep_alive() && !hub_.draining &&
             parser_->content_length().value_or(SIZE_MAX) <= kMaxBodyBytes;
    send(*std::move(pending_), keeps_, [](Connection& self) { self.read_body(); });
  }

  void on_body() {
    if (is_answered_) return keeps_ ? read_head() : close();
    const bool keep = parser_->get().keep_alive();
    if (pending_) return finish(*std::move(pending_), keep);
    auto job = std::make_shared<Job>();
    job->head = head_;
    job->request_id = request_id_;
    job->body = std::move(body_);
    job->body_charge = std::move(body_charge_);
    forget_body();
    job->arrived = seconds_now();
    cancel_ = job->cancel;
    const bool taken = hub_.queue->try_push([self = shared_from_this(), job, keep] {
      HttpResponse response = self->hub_.service.run(*job);
      job->body = {};
      job->body_charge = {};
      asio::post(self->stream_.get_executor(),
                 [self, response = std::move(response), keep]() mutable {
                   self->cancel_.reset();
                   self->finish(std::move(response), keep);
                 });
    });
    if (!taken) {
      cancel_.reset();
      return finish(hub_.service.refuse_full(head_), keep);
    }
    stream_.expires_never();
    watch_for_departure();
  }

  // A readable socket that has nothing to read was closed by the client. Bytes of a next request
  // end the watch.
  void watch_for_departure() {
    stream_.socket().async_wait(
        tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
          if (error || !self->cancel_ || !self->stream_.socket().is_open()) return;
          char byte = 0;
          error_code peek_error;
          self->stream_.socket().non_blocking(true, peek_error);
          const size_t n = self->stream_.socket().receive(asio::buffer(&byte, 1),
                                                          tcp::socket::message_peek, peek_error);
          if (peek_error == asio::error::would_block) return self->watch_for_departure();
          if (n == 0 || peek_error) *self->cancel_ = true;
        });
  }

  void finish(HttpResponse response, bool keep) {
    if (!stream_.socket().is_open()) return;
    error_code ignored;
    stream_.socket().cancel(ignored);  // the watch
    keep = keep && !hub_.draining;
    send(std::move(response), keep,
         [keep](Connection& self) { keep ? self.read_head() : self.close(); });
  }

  // Writes the answer, then goes on with `next`.
  template <typename Next>
  void send(HttpResponse response, bool keep, Next next) {
    auto message = std::make_shared<http::response<http::string_body>>();
    message->version(11);
    message->result(static_cast<unsigned>(response.status));
    message->set(http::field::server, "okibi");
    message->set(http::field::content_type, response.content_type);
    message->set("x-typesafe-request-id", request_id_);
    message->set("x-request-id", request_id_);
    for (const auto& [name, value] : response.headers) message->set(name, value);
    message->keep_alive(keep);
    const size_t n_bytes = response.body.size();
    if (head_.method != "HEAD") message->body() = std::move(response.body);
    message->content_length(n_bytes);
    count(response.status);
    stream_.expires_after(milliseconds(hub_.options.idle_seconds));
    http::async_write(stream_, *message,
                      [self = shared_from_this(), message, next](error_code error, size_t) {
                        if (error) return self->close();
                        next(*self);
                      });
  }

  void count(int status) {
    const double seconds = seconds_now() - started_;
    hub_.metrics.count_response(Service::route_of(head_.path), status, seconds);
    {
      std::lock_guard lock(hub_.mutex);
      hub_.update_load();
    }
    if (!hub_.options.on_request) return;
    hub_.options.on_request({request_id_, head_.method, head_.path, status, seconds});
  }

  void close() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
  }

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

}  // namespace

struct Server::State {
  State(ServerOptions options, Decider& decider)
      : hub(std::move(options), decider), acceptor(asio::make_strand(io)), retry(io) {}

  void accept() {
    acceptor.async_accept(asio::make_strand(io), [this](error_code error, tcp::socket socket) {
      if (hub.draining || error == asio::error::operation_aborted) return;
      if (error) {  // out of descriptors, mostly
        retry.expires_after(std::chrono::milliseconds(100));
        retry.async_wait([this](error_code) { accept(); });
        return;
      }
      error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      std::make_shared<Connection>(std::move(socket), hub)->start();
      accept();
    });
  }

  void stop_connections(bool now) {
    // The last reference may be dropped here, and the destructor takes the mutex.
    std::vector<std::shared_ptr<Connection>> all;
    {
      std::lock_guard lock(hub.mutex);
      for (Connection* connection : hub.connections) {
        if (auto alive = connection->weak_from_this().lock()) all.push_back(std::move(alive));
      }
    }
    for (const auto& connection : all) connection->stop(now);
  }

  bool wait_until_empty(double seconds) {
    std::unique_lock lock(hub.mutex);
    return hub.changed.wait_for(lock, milliseconds(seconds),
                                [this] { return hub.connections.empty(); });
  }

  Hub hub;  // before io, whose last handlers hold connections
  asio::io_context io{static_cast<int>(kIoThreads)};
  tcp::acceptor acceptor;
  asio::steady_timer retry;
  uint16_t port = 0;
  std::string host;
  std::vector<std::thread> threads;
  bool is_drained = false;
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<Server>> Server::start(ServerOptions options, Decider& decider) {
  error_code error;
  const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (error) {
    return invalid_argument(fmt::format(
        "the host {:.100} is no IP address; expected one such as 127.0.0.1 or ::1", options.host));
  }
  if (!address.is_loopback() && options.keys.empty()) {
    return invalid_argument(fmt::format(
        "{} is reachable from other machines, so a file of keys is needed there", host));
  }
  const uint16_t port = options.port;
  auto state = std::make_unique<State>(std::move(options), decider);
  Hub& hub = state->hub;
  hub.queue = std::make_unique<JobQueue>(hub.options.n_workers, hub.options.max_waiting);
  hub.service.set_queue(hub.queue.get());
  const tcp::endpoint endpoint(address, port);
  state->acceptor.open(endpoint.protocol(), error);
  if (!error) state->acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) state->acceptor.bind(endpoint, error);
  if (!error) state->acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return unavailable(
        fmt::format("cannot listen on {}, port {}: {}", host, port, error.message()));
  }
  state->port = state->acceptor.local_endpoint(error).port();
  state->host = address.is_v6() ? "[" + host + "]" : host;
  state->accept();
  for (size_t i = 0; i < kIoThreads; ++i) {
    state->threads.emplace_back([raw = state.get()] { raw->io.run(); });
  }
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

Server::~Server() {
  if (!state_->is_drained) drain(0);
}

uint16_t Server::port() const {
  return state_->port;
}

std::string Server::address() const {
  return fmt::format("{}:{}", state_->host, state_->port);
}

void Server::drain(double seconds) {
  State& state = *state_;
  state.is_drained = true;
  state.hub.draining = true;
  state.hub.service.set_draining();
  asio::post(state.acceptor.get_executor(), [&state] {
    error_code ignored;
    state.acceptor.close(ignored);
    state.retry.cancel();
  });
  state.stop_connections(/*now=*/false);
  if (!state.wait_until_empty(seconds)) {
    state.stop_connections(/*now=*/true);
    state.wait_until_empty(10);
  }
  // Jobs that are cancelled end soon; their answers find closed sockets. The queue stays: the last
  // connections end with `io`, and they ask for its length.
  state.hub.queue->finish();
  state.io.stop();
  for (std::thread& thread : state.threads) thread.join();
}

}  // namespace okibi::server
