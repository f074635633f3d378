// The server over loopback, with a decider that answers from a table: every status, limits, keys,
// departures, draining.
#include "server/server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/clock.h"
#include "server/http_client.h"
#include "server/wire/body_coding.h"
#include "server/wire_cases.h"

namespace okibi::server {
namespace {

using Json = nlohmann::ordered_json;

// Uniform answers; the state "wait" waits for open(), "cancel" for the client to go, others name an
// error.
class FakeDecider : public Decider {
 public:
  const ModelCard& card() const override { return card_; }

  Result<Answers> decide(const WireRequest& request, const JobOptions& options) override {
    {
      std::unique_lock lock(mutex_);
      last_scope_ = options.scope;
      ++n_running_;
      changed_.notify_all();
      if (request.state == "wait") changed_.wait(lock, [this] { return is_open_; });
    }
    if (request.state == "cancel") {
      const double start = seconds_now();
      while (!*options.cancel && seconds_now() - start < 20) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      was_cancelled_ = options.cancel->load();
      return cancelled("gone");
    }
    if (request.state == "unsupported") return unsupported("not here");
    if (request.state == "long") return resource_exhausted("too long");
    if (request.state == "lost") return unavailable("engine lost");
    if (request.state == "unknown picture") return not_found("no such picture");
    Answers answers;
    for (const Question& question : request.questions) {
      const double n = static_cast<double>(question.options.size());
      answers.result.answers.push_back(
          {.type = question.type,
           .probabilities = std::vector<double>(question.options.size(), 1 / n),
           .score = question.type == QuestionType::kNoul ? 0.5 : (n - 1) / 2});
    }
    answers.result.n_prefix_tokens = 7;
    answers.result.n_suffix_tokens = 5;
    answers.n_cached_tokens = 3;
    answers.order = options.order;
    return answers;
  }

  void open() {
    std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  bool wait_for_calls(int n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return n_running_ >= n; });
  }
  std::string last_scope() {
    std::lock_guard lock(mutex_);
    return last_scope_;
  }
  bool was_cancelled() const { return was_cancelled_; }

 private:
  ModelCard card_{.name = "fake-1", .description = "Uniform answers.", .release_date = "2026"};
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::string last_scope_;
  int n_running_ = 0;
  bool is_open_ = false;
  std::atomic<bool> was_cancelled_ = false;
};

std::string body_of(const std::string& state) {
  return R"({"state": ")" + state +
         R"(", "questions": {"q": {"type": "noul", "instructions": "?"}}})";
}

class SlowServerTest : public ::testing::Test {
 protected:
  void TearDown() override { decider_.open(); }

  void start(ServerOptions options = {}) {
    options.port = 0;
    auto server = Server::start(std::move(options), decider_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
  }
  HttpReply call(HttpCall call) {
    call.url = "http://" + server_->address() + call.url;
    call.timeout_seconds = 60;
    if (call.method == "POST" && call.headers.count("Content-Type") == 0) {
      call.headers["Content-Type"] = "application/json";
    }
    const Result<HttpReply> reply = http_call(call);
    EXPECT_TRUE(reply.ok()) << reply.status().message();
    return reply.ok() ? *reply : HttpReply{};
  }
  HttpReply get(const std::string& path) { return call({.method = "GET", .url = path}); }
  HttpReply post(const std::string& body, const std::string& path = "/v1/systemone") {
    return call({.url = path, .body = body});
  }
  // A connection that says `bytes` and stays open.
  int connect_raw(const std::string& bytes) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::send(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return fd;
  }
  static std::string read_to_end(int fd) {
    std::string out;
    char chunk[4096];
    for (ssize_t n; (n = ::recv(fd, chunk, sizeof chunk, 0)) > 0;) out.append(chunk, n);
    ::close(fd);
    return out;
  }

  FakeDecider decider_;
  std::unique_ptr<Server> server_;
};

std::string raw_post(const std::string& body, const std::string& headers = "") {
  return fmt::format(
      "POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n{}\r\n{}",
      body.size(), headers, body);
}

TEST_F(SlowServerTest, AnswersQuestionsWithTheHeadersItPromises) {
  start();
  const HttpReply reply = post(body_of("x"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(Json::parse(reply.body).dump(),
            R"({"model":"fake-1","answers":{"q":{"type":"noul","noul":0.5}},)"
            R"("usage":{"input_tokens":12,"output_tokens":0}})");
  EXPECT_EQ(reply.headers.at("content-type"), "application/json");
  EXPECT_EQ(reply.headers.at("x-typesafe-request-id").substr(0, 4), "req_");
  EXPECT_NE(reply.headers.at("server-timing").find("total;dur="), std::string::npos);
  EXPECT_NE(reply.headers.at("x-okibi-cache").find("tokens;cached=3"), std::string::npos);
  EXPECT_EQ(reply.headers.at("x-okibi-order"), "off");
  EXPECT_EQ(reply.headers.at("x-okibi-calibration"), "off");
}

TEST_F(SlowServerTest, AnswersEveryRecordedRequest) {
  ApiKeys keys = *ApiKeys::parse("test-key");
  start({.keys = keys});
  for (const testing::WireCase& c : testing::all_wire_cases()) {
    HttpCall request{.method = c.method, .url = c.path, .body = c.body};
    for (const char* name : {"authorization", "content-type", "content-encoding"}) {
      const auto found = c.headers.find(name);
      if (found != c.headers.end()) request.headers[name] = found->second;
    }
    if (request.headers.count("content-type") > 0) {
      request.headers["Content-Type"] = request.headers["content-type"];
      request.headers.erase("content-type");
    }
    const HttpReply reply = call(request);
    int expected = c.meant["status"];
    if (c.name == "ts_image_is_state_box") expected = 422;
    if (c.name == "ts_image_alias_and_reference") expected = 400;
    // The recording's mock took any name for a model.
    if (c.name.starts_with("oai_") && c.method == "POST") expected = 400;
    EXPECT_EQ(reply.status, expected) << c.name << ": " << reply.body;
    EXPECT_EQ(reply.headers.count("x-typesafe-request-id"), 1u) << c.name;
  }
}

TEST_F(SlowServerTest, ServesItsOpenPages) {
  start();
  EXPECT_EQ(Json::parse(get("/health").body)["status"], "ok");
  EXPECT_EQ(Json::parse(get("/v1/models?x=1").body)["data"][0]["id"], "fake-1");
  EXPECT_EQ(Json::parse(get("/v1/limits").body)["body_bytes"], kMaxBodyBytes);
  const Json openapi = Json::parse(get("/openapi.json").body);
  EXPECT_EQ(openapi["openapi"], "3.1.0");
  EXPECT_EQ(openapi["paths"].size(), 7u);
  post(body_of("x"));
  const HttpReply metrics = get("/metrics");
  EXPECT_NE(metrics.body.find("okibi_requests_total{route=\"/v1/systemone\",status=\"200\"} 1"),
            std::string::npos)
      << metrics.body;
  const HttpReply head = call({.method = "HEAD", .url = "/health"});
  EXPECT_EQ(head.status, 200);
}

TEST_F(SlowServerTest, RefusesWithTheRightStatus) {
  start();
  EXPECT_EQ(get("/nothing").status, 404);
  EXPECT_EQ(get("/v1/systemone").status, 405);
  EXPECT_EQ(get("/v1/systemone").headers.at("allow"), "POST");
  EXPECT_EQ(post("{", "/v1/models").status, 405);
  EXPECT_EQ(post("{").status, 400);
  EXPECT_EQ(post("{}").status, 422);
  EXPECT_EQ(post("{}", "/v1/decisions").status, 422);
  EXPECT_EQ(post(R"({"model": "other", )" + body_of("x").substr(1)).status, 400);
  EXPECT_EQ(post(body_of("unsupported")).status, 422);
  EXPECT_EQ(post(body_of("long")).status, 413);
  EXPECT_EQ(post(body_of("unknown picture")).status, 404);
  EXPECT_EQ(post(body_of("lost")).status, 503);
  EXPECT_EQ(post(body_of("lost")).headers.count("retry-after"), 1u);
  EXPECT_EQ(call({.url = "/v1/systemone", .headers = {{"Content-Type", "text/plain"}}}).status,
            415);
  EXPECT_EQ(
      call({.url = "/v1/systemone", .headers = {{"Content-Encoding", "br"}}, .body = body_of("x")})
          .status,
      415);
  EXPECT_EQ(
      call({.url = "/v1/systemone", .headers = {{"X-Okibi-Order", "some"}}, .body = body_of("x")})
          .status,
      422);
  EXPECT_EQ(call({.url = "/v1/systemone",
                  .headers = {{"Origin", "https://example.com"}},
                  .body = body_of("x")})
                .status,
            403);
  EXPECT_EQ(call({.url = "/v1/systemone",
                  .headers = {{"Origin", "http://localhost:8080"}},
                  .body = body_of("x")})
                .status,
            200);
}

TEST_F(SlowServerTest, DecisionsErrorsAreObjects) {
  start();
  const Json error = Json::parse(post("{", "/v1/decisions").body);
  EXPECT_TRUE(error["error"]["message"].is_string());
  EXPECT_EQ(error["error"]["type"], "invalid_request_error");
}

TEST_F(SlowServerTest, WantsAKnownKeyAndKeepsKeysApart) {
  start({.keys = *ApiKeys::parse("# keys\nfirst-key alice\r\n\nsecond-key\n")});
  const auto with_key = [&](const std::string& key, const std::string& body) {
    HttpCall request{.url = "/v1/decisions", .body = body};
    if (!key.empty()) request.headers["Authorization"] = key;
    return call(request).status;
  };
  const std::string body =
      R"({"input": "x", "questions": [{"type": "predicate", "instructions": "?"}])";
  EXPECT_EQ(with_key("", body + "}"), 401);
  EXPECT_EQ(with_key("Bearer third-key", body + "}"), 401);
  EXPECT_EQ(with_key("Basic first-key", body + "}"), 401);
  EXPECT_EQ(with_key("Bearer ", body + "}"), 401);
  std::set<std::string> scopes;
  EXPECT_EQ(with_key("Bearer first-key", body + "}"), 200);
  scopes.insert(decider_.last_scope());
  EXPECT_EQ(with_key("bearer second-key", body + "}"), 200);
  scopes.insert(decider_.last_scope());
  EXPECT_EQ(with_key("Bearer first-key", body + R"(, "prompt_cache_key": "k"})"), 200);
  scopes.insert(decider_.last_scope());
  EXPECT_EQ(scopes.size(), 3u);
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/v1/models").status, 401);
  EXPECT_EQ(get("/metrics").status, 401);
}

TEST_F(SlowServerTest, NeedsKeysBeyondLoopback) {
  const auto server = Server::start({.host = "0.0.0.0", .port = 0}, decider_);
  ASSERT_FALSE(server.ok());
  EXPECT_NE(server.status().message().find("keys"), std::string::npos);
  EXPECT_FALSE(Server::start({.host = "example", .port = 0}, decider_).ok());
  EXPECT_FALSE(ApiKeys::parse("short").ok());
  EXPECT_FALSE(ApiKeys::parse("# none\n").ok());
}

TEST_F(SlowServerTest, CountsBodiesHoweverTheyCome) {
  start();
  const std::string large(kMaxBodyBytes + 1, ' ');
  EXPECT_EQ(post(large).status, 413);
  const std::string exact = body_of("x") + std::string(kMaxBodyBytes - body_of("x").size(), ' ');
  EXPECT_EQ(post(exact).status, 200);
  // Chunked, without a length in the head.
  std::string head =
      "POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
      "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string chunk = "100000\r\n" + std::string(1 << 20, ' ') + "\r\n";
  const int fd = connect_raw(head);
  for (int i = 0; i < 33; ++i) {
    size_t sent = 0;
    while (sent < chunk.size()) {
      const ssize_t n = ::send(fd, chunk.data() + sent, chunk.size() - sent, MSG_NOSIGNAL);
      ASSERT_GT(n, 0);
      sent += static_cast<size_t>(n);
    }
  }
  ::send(fd, "0\r\n\r\n", 5, MSG_NOSIGNAL);
  EXPECT_EQ(read_to_end(fd).substr(0, 12), "HTTP/1.1 413");
}

TEST_F(SlowServerTest, RefusesAFullQueueAtOnceAndStaysHealthy) {
  start({.n_workers = 1, .max_waiting = 1});
  std::vector<std::thread> clients;
  std::atomic<int> n_ok = 0;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back([&] { n_ok += post(body_of("wait")).status == 200; });
    ASSERT_TRUE(decider_.wait_for_calls(1));
  }
  while (Json::parse(get("/health").body)["waiting"] != 1) std::this_thread::yield();
  const double start_time = seconds_now();
  const HttpReply full = post(body_of("x"));
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(full.headers.at("retry-after"), "1");
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_LT(seconds_now() - start_time, 5);
  decider_.open();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(n_ok, 2);
  EXPECT_EQ(post(body_of("x")).status, 200);
}

// Bodies count together, however many connections they come by, until their requests are answered.
TEST_F(SlowServerTest, BoundsTheMemoryOfAllBodiesTogether) {
  start({.n_workers = 1, .max_waiting = 1000, .max_body_memory = 64 << 20});
  const std::string small = body_of("x");
  const std::string large = body_of("wait") + std::string(20 << 20, ' ');
  std::vector<std::thread> clients;
  std::atomic<int> n_ok = 0;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&] { n_ok += post(large).status == 200; });
  }
  const auto n_taken = [&] {
    const Json health = Json::parse(get("/health").body);
    return health["running"].get<int>() + health["waiting"].get<int>();
  };
  while (n_taken() != 3) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const HttpReply announced = post(large);
  EXPECT_EQ(announced.status, 429);
  EXPECT_EQ(announced.headers.at("retry-after"), "1");
  EXPECT_EQ(Json::parse(announced.body)["code"], "BODIES_FULL");
  const std::string chunk = "100000\r\n" + std::string(1 << 20, ' ') + "\r\n";
  std::string chunked =
      "POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
      "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 8; ++i) chunked += chunk;
  EXPECT_EQ(read_to_end(connect_raw(chunked + "0\r\n\r\n")).substr(0, 12), "HTTP/1.1 429");
  // At once: before the body has come.
  const int early = connect_raw(raw_post(large).substr(0, 1000));
  char status[13] = {};
  ASSERT_EQ(::recv(early, status, 12, MSG_WAITALL), 12);
  EXPECT_EQ(std::string(status), "HTTP/1.1 429");
  ::close(early);
  std::thread waits([&] { n_ok += post(small).status == 200; });  // there is room for this one
  decider_.open();
  waits.join();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(n_ok, 4);
  EXPECT_EQ(post(large).status, 200);
  EXPECT_NE(get("/metrics").body.find("okibi_body_bytes 0"), std::string::npos);
}

TEST_F(SlowServerTest, ManyLargeUploadsAreAnsweredOrRefused) {
  start({.n_workers = 2, .max_waiting = 1000, .max_body_memory = 3 << 19});
  const std::string body = body_of("x") + std::string(1 << 20, ' ');
  std::vector<std::thread> clients;
  std::atomic<int> n_ok = 0, n_other = 0;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&] {
      for (int attempt = 0; attempt < 500; ++attempt) {
        const int status = post(body).status;
        n_ok += status == 200;
        n_other += status != 200 && status != 429;
        if (status == 200) return;
        std::this_thread::sleep_for(std::chrono::seconds(1));  // as Retry-After says
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(n_ok, 16);
  EXPECT_EQ(n_other, 0);
  EXPECT_NE(get("/metrics").body.find("okibi_body_bytes 0"), std::string::npos);
}

TEST_F(SlowServerTest, CancelsTheWorkOfAClientThatHasGone) {
  start({.n_workers = 1});
  const int fd = connect_raw(raw_post(body_of("cancel")));
  ASSERT_TRUE(decider_.wait_for_calls(1));
  ::close(fd);
  EXPECT_EQ(post(body_of("x")).status, 200);  // the only worker is free again
  EXPECT_TRUE(decider_.was_cancelled());
}

TEST_F(SlowServerTest, KeepsConnectionsAndSeveralRequestsInOrder) {
  start();
  const int fd = connect_raw(raw_post(body_of("x")) + raw_post("{") +
                             raw_post(body_of("x"), "Connection: close\r\n"));
  const std::string out = read_to_end(fd);
  const size_t first = out.find("HTTP/1.1 200"), second = out.find("HTTP/1.1 400");
  EXPECT_EQ(first, 0u);
  EXPECT_LT(first, second);
  EXPECT_NE(out.find("HTTP/1.1 200", second), std::string::npos) << out;
}

TEST_F(SlowServerTest, TurnsAwayAConnectionTooManyInWords) {
  start({.max_connections = 1});
  const int fd = connect_raw(raw_post(body_of("wait"), "Connection: close\r\n"));
  ASSERT_TRUE(decider_.wait_for_calls(1));
  const HttpReply reply = get("/health");
  EXPECT_EQ(reply.status, 503);
  EXPECT_NE(reply.body.find("1 connections are open"), std::string::npos) << reply.body;
  decider_.open();
  EXPECT_EQ(read_to_end(fd).substr(0, 12), "HTTP/1.1 200");
  int status = 0;  // the place is free once the server has seen its client go
  for (int i = 0; i < 100 && status != 200; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    status = get("/health").status;
  }
  EXPECT_EQ(status, 200);
}

TEST_F(SlowServerTest, AsksForABodyThatIsAnnounced) {
  start();
  const std::string body = body_of("x");
  const int fd = connect_raw(
      fmt::format("POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                  "Expect: 100-continue\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                  body.size()));
  char answer[25] = {};
  ASSERT_EQ(::recv(fd, answer, 25, MSG_WAITALL), 25);
  EXPECT_EQ(std::string(answer, 25), "HTTP/1.1 100 Continue\r\n\r\n");
  ::send(fd, body.data(), body.size(), 0);
  EXPECT_EQ(read_to_end(fd).substr(0, 12), "HTTP/1.1 200");
}

TEST_F(SlowServerTest, SurvivesWhatIsNotHttp) {
  start({.idle_seconds = 0.3});
  EXPECT_EQ(read_to_end(connect_raw("\x16\x03\x01 not http\r\n\r\n")).substr(0, 12),
            "HTTP/1.1 400");
  EXPECT_EQ(read_to_end(connect_raw("GET /" + std::string(20'000, 'a'))).substr(0, 12),
            "HTTP/1.1 431");
  EXPECT_EQ(read_to_end(connect_raw("POST /v1/systemone HTTP/1.1\r\nContent-Le")), "");
  EXPECT_EQ(read_to_end(connect_raw("")), "");
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(SlowServerTest, DrainsWhatRunsAndTakesNothingNew) {
  start();
  std::atomic<int> status = 0;
  std::thread client([&] { status = post(body_of("wait")).status; });
  ASSERT_TRUE(decider_.wait_for_calls(1));
  const int idle = connect_raw("");
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    decider_.open();
  });
  const double begin = seconds_now();
  server_->drain(30);
  EXPECT_LT(seconds_now() - begin, 20);
  opener.join();
  client.join();
  EXPECT_EQ(status, 200);
  EXPECT_EQ(read_to_end(idle), "");
}

TEST_F(SlowServerTest, DrainingEndsByCancelling) {
  start();
  const int fd = connect_raw(raw_post(body_of("cancel")));
  ASSERT_TRUE(decider_.wait_for_calls(1));
  server_->drain(0.05);
  EXPECT_TRUE(decider_.was_cancelled());
  read_to_end(fd);
}

TEST_F(SlowServerTest, ServesManyClientsAtOnce) {
  start({.n_workers = 3, .max_waiting = 1000});
  std::vector<std::thread> clients;
  std::atomic<int> n_ok = 0;
  for (int i = 0; i < 20; ++i) {
    clients.emplace_back([&] {
      for (int k = 0; k < 10; ++k) n_ok += post(body_of("x")).status == 200;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(n_ok, 200);
}

}  // namespace
}  // namespace okibi::server
