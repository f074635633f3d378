#include "server/connection.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "server/wire/body_coding.h"

namespace okibi::server {
namespace {

// A body that was refused is read on, but not for ever.
constexpr size_t kMostDiscarded = size_t{128} << 20;
// How long one connection too many may take to say something.
constexpr double kTurnAwaySeconds = 2;

}  // namespace

Connection::~Connection() {
  if (is_counted_) hub_.remove(this);
}

void Connection::start() {
  is_counted_ = hub_.add(this);
  asio::dispatch(stream_.get_executor(), [self = shared_from_this()] {
    self->is_counted_ ? self->read_head() : self->turn_away();
  });
}

void Connection::turn_away() {
  started_ = seconds_now();
  request_id_ = hub_.ids.next();
  // Something is read first: closing a socket that holds unread bytes would take the answer back.
  stream_.expires_after(milliseconds(kTurnAwaySeconds));
  stream_.async_read_some(
      buffer_.prepare(kMaxHeadBytes), [self = shared_from_this()](error_code error, size_t) {
        if (error) return self->close();
        HttpResponse response =
            self->hub_.service.refuse(self->head_, 503, "TOO_MANY_CONNECTIONS",
                                      fmt::format("{} connections are open, as many as may be",
                                                  self->hub_.options.max_connections));
        response.headers.emplace_back("Retry-After", "1");
        self->finish(std::move(response), /*keep=*/false);
      });
}

void Connection::stop(bool now) {
  asio::post(stream_.get_executor(), [self = shared_from_this(), now] {
    if (now && self->cancel_) *self->cancel_ = true;
    if (self->is_idle_ || now) self->close();
  });
}

void Connection::read_head() {
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

void Connection::on_head(error_code error) {
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

void Connection::take_head() {
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

void Connection::forget_body() {
  body_ = {};
  body_charge_ = {};
}

bool Connection::append_to_body(const char* data, size_t n) {
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

void Connection::refuse_body() {
  if (pending_) return;
  pending_ = hub_.service.refuse(
      head_, 413, "BODY_TOO_LARGE",
      fmt::format("a body may have {} bytes, compressed and decoded", kMaxBodyBytes));
}

void Connection::send_continue() {
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(stream_, asio::buffer(kContinue),
                    [self = shared_from_this()](error_code error, size_t) {
                      if (error) return self->close();
                      self->read_body();
                    });
}

void Connection::read_body() {
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

void Connection::on_chunk(error_code error) {
  if (error == http::error::need_buffer) error = {};
  if (error) {
    if (error.category() == asio::error::get_system_category() || error == beast::error::timeout ||
        error == http::error::partial_message || error == http::error::end_of_stream ||
        is_answered_) {
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

void Connection::answer_early() {
  forget_body();
  is_answered_ = true;
  keeps_ = parser_->get().keep_alive() && !hub_.draining &&
           parser_->content_length().value_or(SIZE_MAX) <= kMaxBodyBytes;
  send(*std::move(pending_), keeps_, [](Connection& self) { self.read_body(); });
}

void Connection::on_body() {
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

void Connection::watch_for_departure() {
  stream_.socket().async_wait(tcp::socket::wait_read,
                              [self = shared_from_this()](error_code error) {
                                if (error || !self->cancel_ || !self->stream_.socket().is_open())
                                  return;
                                char byte = 0;
                                error_code peek_error;
                                self->stream_.socket().non_blocking(true, peek_error);
                                const size_t n = self->stream_.socket().receive(
                                    asio::buffer(&byte, 1), tcp::socket::message_peek, peek_error);
                                if (peek_error == asio::error::would_block)
                                  return self->watch_for_departure();
                                if (n == 0 || peek_error) *self->cancel_ = true;
                              });
}

void Connection::finish(HttpResponse response, bool keep) {
  if (!stream_.socket().is_open()) return;
  error_code ignored;
  stream_.socket().cancel(ignored);  // the watch
  keep = keep && !hub_.draining;
  send(std::move(response), keep,
       [keep](Connection& self) { keep ? self.read_head() : self.close(); });
}

template <typename Next>
void Connection::send(HttpResponse response, bool keep, Next next) {
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

void Connection::count(int status) {
  const double seconds = seconds_now() - started_;
  hub_.metrics.count_response(Service::route_of(head_.path), status, seconds);
  {
    std::lock_guard lock(hub_.mutex);
    hub_.update_load();
  }
  if (!hub_.options.on_request) return;
  hub_.options.on_request({request_id_, head_.method, head_.path, status, seconds});
}

void Connection::close() {
  error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  stream_.close();
}

}  // namespace okibi::server
