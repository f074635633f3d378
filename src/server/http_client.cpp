#include "server/http_client.h"

#include <fmt/format.h>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <utility>

namespace okibi::server {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr uint64_t kMaxReplyBytes = uint64_t{64} << 20;

struct Address {
  std::string host, port = "80", path = "/";
};

Result<Address> parse_url(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) {
    return invalid_argument(fmt::format("{:.200}: expected an address that begins http://", url));
  }
  url.remove_prefix(kScheme.size());
  Address address;
  const size_t slash = std::min(url.find('/'), url.size());
  if (slash < url.size()) address.path = std::string(url.substr(slash));
  std::string_view authority = url.substr(0, slash);
  const size_t bracket = authority.find(']');
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    address.port = std::string(authority.substr(colon + 1));
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) {
    authority = authority.substr(1, authority.size() - 2);
  }
  address.host = std::string(authority);
  if (address.host.empty() || address.port.empty()) {
    return invalid_argument(fmt::format("{:.200}: the address names no host", url));
  }
  return address;
}

// One call; every step stores its outcome and the next one begins only after success.
class Caller {
 public:
  Caller(const HttpCall& call, const Address& address) : call_(call), address_(address) {}

  Result<HttpReply> run() {
    asio::ip::tcp::resolver resolver(io_);
    error_code error;
    const auto endpoints = resolver.resolve(address_.host, address_.port, error);
    if (error) return failed("find", error);
    stream_.expires_after(
        std::chrono::milliseconds(static_cast<int64_t>(call_.timeout_seconds * 1e3)));
    stream_.async_connect(endpoints, [&](error_code e, const auto&) { error = e; });
    run_io();
    if (error) return failed("reach", error);
    http::request<http::string_body> request(http::string_to_verb(call_.method), address_.path, 11);
    request.set(http::field::host, address_.host);
    request.set(http::field::connection, "close");
    for (const auto& [name, value] : call_.headers) request.set(name, value);
    request.body() = call_.body;
    request.prepare_payload();
    http::async_write(stream_, request, [&](error_code e, size_t) { error = e; });
    run_io();
    // A server may answer and close before it has read everything.
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMaxReplyBytes);
    parser.skip(call_.method == "HEAD");
    beast::flat_buffer buffer;
    http::async_read(stream_, buffer, parser, [&](error_code e, size_t) { error = e; });
    run_io();
    if (error) return failed("read an answer of", error);
    HttpReply reply{.status = static_cast<int>(parser.get().result_int())};
    for (const auto& field : parser.get()) {
      std::string name(field.name_string());
      for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
      reply.headers[name] = std::string(field.value());
    }
    reply.body = std::move(parser.get().body());
    return reply;
  }

 private:
  void run_io() {
    io_.restart();
    io_.run();
  }
  Status failed(std::string_view what, error_code error) const {
    return unavailable(
        fmt::format("cannot {} {}:{}: {}", what, address_.host, address_.port, error.message()));
  }

  const HttpCall& call_;
  const Address& address_;
  asio::io_context io_{1};
  beast::tcp_stream stream_{io_};
};

}  // namespace

Result<HttpReply> http_call(const HttpCall& call) {
  OKIBI_ASSIGN_OR_RETURN(const Address address, parse_url(call.url));
  return Caller(call, address).run();
}

}  // namespace okibi::server
