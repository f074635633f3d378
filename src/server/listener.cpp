// The server: a few I/O threads that never wait for the engine, one strand per connection.
#include <fmt/format.h>

#include <thread>
#include <vector>

#include "server/connection.h"
#include "server/server.h"

namespace okibi::server {

namespace {
constexpr size_t kIoThreads = 2;
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
