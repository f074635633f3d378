#include "same_bits_machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "engine/scheduler.h"

namespace okibi::test {
namespace {

constexpr const char* kActionNames[] = {"append",   "decode",   "together", "fork",
                                        "truncate", "snapshot", "restore",  "reset"};

std::vector<TokenId> random_tokens(uint32_t seed, uint32_t n, uint32_t n_vocab) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& t : tokens) t = static_cast<TokenId>(random() % n_vocab);
  return tokens;
}

}  // namespace

std::string to_text(const Program& program) {
  std::ostringstream out;
  for (const Step& s : program) {
    out << "  " << kActionNames[static_cast<int>(s.action)] << " session=" << s.session
        << " other=" << s.other << " n_tokens=" << s.n_tokens << " chunk=" << s.chunk
        << " seed=" << s.seed << "\n";
  }
  return out.str();
}

struct SameBitsMachine::Run {
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Snapshot> snapshots;
};

SameBitsMachine::SameBitsMachine(std::shared_ptr<Engine> subject, std::shared_ptr<Engine> cold,
                                 MachineOptions options)
    : subject_(std::move(subject)), cold_(std::move(cold)), options_(options) {}

Program SameBitsMachine::random_program(std::mt19937_64& random) const {
  const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  // Lengths around what matters: single tokens, page borders (64), batch borders.
  const auto length = [&]() -> uint32_t {
    switch (pick(4)) {
      case 0:
        return 1 + pick(4);
      case 1:
        return 60 + pick(10);
      case 2:
        return 1 + pick(200);
      default:
        return 1 + pick(512);
    }
  };
  constexpr Action kWeighted[] = {Action::kAppend,   Action::kAppend,   Action::kDecode,
                                  Action::kDecode,   Action::kTogether, Action::kTogether,
                                  Action::kFork,     Action::kFork,     Action::kTruncate,
                                  Action::kSnapshot, Action::kRestore,  Action::kReset};
  Program program;
  for (uint32_t i = 0; i < options_.n_steps; ++i) {
    program.push_back({.action = i == 0 ? Action::kAppend : kWeighted[pick(std::size(kWeighted))],
                       .session = pick(options_.n_sessions),
                       .other = pick(options_.n_sessions),
                       .n_tokens = length(),
                       .chunk = 1 + pick(512),
                       .seed = pick(1u << 30)});
  }
  return program;
}

bool SameBitsMachine::check(const Session& session) {
  if (session.n_tokens() == 0) return session.logits().empty();
  auto [it, is_new] = cold_hashes_.try_emplace(session.tokens(), 0);
  if (is_new) {
    auto cold = cold_->new_session();
    EXPECT_TRUE(cold.ok());
    const Status status = (*cold)->append(session.tokens());
    EXPECT_TRUE(status.ok()) << status.message();
    it->second = (*cold)->logits_hash();
  }
  return it->second == session.logits_hash();
}

// All appends share their first step: the engine thread is held until every work has arrived.
bool SameBitsMachine::append_together(std::vector<std::pair<Session*, std::vector<TokenId>>> work) {
  std::vector<std::thread> threads;
  engine::Scheduler& scheduler = subject_->scheduler();
  std::atomic<bool> held = false;
  std::thread gate([&] {
    scheduler.call([&](engine::Core&) {
      held = true;
      while (scheduler.n_incoming() < work.size()) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  });
  while (!held) std::this_thread::sleep_for(std::chrono::microseconds(50));
  std::atomic<bool> all_ok = true;
  for (auto& [session, tokens] : work) {
    threads.emplace_back([&, session = session] {
      if (!session->append(tokens).ok()) all_ok = false;
    });
  }
  for (std::thread& t : threads) t.join();
  gate.join();
  return all_ok;
}

bool SameBitsMachine::run_step(Run& run, const Step& step) {
  const uint32_t n_vocab = subject_->info().n_vocab;
  std::unique_ptr<Session>& session = run.sessions[step.session];
  const auto room = [&](const Session& s) {
    return options_.max_length > s.n_tokens() ? options_.max_length - s.n_tokens() : size_t{0};
  };
  const uint32_t n = static_cast<uint32_t>(std::min<size_t>(step.n_tokens, room(*session)));
  switch (step.action) {
    case Action::kAppend:
      if (n == 0) return true;
      EXPECT_TRUE(
          session->append(random_tokens(step.seed, n, n_vocab), {.max_chunk = step.chunk}).ok());
      return check(*session);
    case Action::kDecode:
      for (uint32_t i = 0; i < std::min(n, 5u); ++i) {
        EXPECT_TRUE(session->append(random_tokens(step.seed + i, 1, n_vocab)).ok());
        if (!check(*session)) return false;
      }
      return true;
    case Action::kTogether: {
      std::vector<std::pair<Session*, std::vector<TokenId>>> work;
      for (uint32_t i = 0; i <= step.other % options_.n_sessions; ++i) {
        Session* s = run.sessions[(step.session + i) % options_.n_sessions].get();
        // Neighbours of very different lengths: every second one decodes a single token.
        const size_t want = i % 2 == 0 ? step.n_tokens : 1;
        const uint32_t m = static_cast<uint32_t>(std::min<size_t>(want, room(*s)));
        if (m > 0) work.emplace_back(s, random_tokens(step.seed + i, m, n_vocab));
      }
      EXPECT_TRUE(append_together(work));
      return std::all_of(work.begin(), work.end(), [&](const auto& w) { return check(*w.first); });
    }
    case Action::kFork: {
      auto fork = session->fork();
      EXPECT_TRUE(fork.ok());
      run.sessions[step.other] = std::move(fork).value();
      return check(*run.sessions[step.other]);
    }
    case Action::kTruncate: {
      const size_t keep = session->n_tokens() * (step.n_tokens % 1024) / 1024;
      EXPECT_TRUE(session->truncate(keep).ok());
      return check(*session);
    }
    case Action::kSnapshot: {
      auto snapshot = session->snapshot();
      EXPECT_TRUE(snapshot.ok());
      run.snapshots[step.other] = std::move(snapshot).value();
      return true;
    }
    case Action::kRestore:
      if (!run.snapshots[step.other].valid()) return true;
      EXPECT_TRUE(session->restore(run.snapshots[step.other]).ok());
      return check(*session);
    case Action::kReset:
      EXPECT_TRUE(session->truncate(0).ok());
      return check(*session);
  }
  return true;
}

std::optional<size_t> SameBitsMachine::first_difference(const Program& program) {
  Run run;
  run.snapshots.resize(options_.n_sessions);
  for (uint32_t i = 0; i < options_.n_sessions; ++i) {
    auto session = subject_->new_session();
    EXPECT_TRUE(session.ok());
    run.sessions.push_back(std::move(session).value());
  }
  for (size_t i = 0; i < program.size(); ++i) {
    if (!run_step(run, program[i])) return i;
  }
  // What nobody touched since must still be as it was: decode once more from everywhere.
  for (auto& session : run.sessions) {
    if (session->n_tokens() == 0 || session->n_tokens() >= options_.max_length) continue;
    EXPECT_TRUE(session->append(random_tokens(7, 1, subject_->info().n_vocab)).ok());
    if (!check(*session)) return program.size();
  }
  return std::nullopt;
}

Program SameBitsMachine::shrink(Program program) {
  const std::optional<size_t> at = first_difference(program);
  if (at.has_value() && *at + 1 < program.size()) program.resize(*at + 1);
  bool progress = true;
  while (progress) {
    progress = false;
    for (size_t i = 0; i < program.size(); ++i) {
      Program shorter = program;
      shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(i));
      if (first_difference(shorter).has_value()) {
        program = shorter;
        progress = true;
        break;
      }
    }
    for (Step& step : program) {
      for (uint32_t n : {step.n_tokens / 2, step.n_tokens - 1}) {
        if (n == 0 || n >= step.n_tokens) continue;
        const uint32_t before = step.n_tokens;
        step.n_tokens = n;
        if (first_difference(program).has_value()) {
          progress = true;
          break;
        }
        step.n_tokens = before;
      }
    }
  }
  return program;
}

}  // namespace okibi::test
