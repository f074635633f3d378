// The same-bits machine: random programs of everything that can be done to sessions, each step
// checked bit for bit against a cold, alone, single-threaded run of the same tokens (promise P1).
// A failing program is shrunk to a short one and printed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "okibi/engine.h"
#include "okibi/session.h"

namespace okibi::test {

enum class Action { kAppend, kDecode, kTogether, kFork, kTruncate, kSnapshot, kRestore, kReset };

// One step. Numbers are reduced modulo what exists when the step runs, so that a program stays
// valid when steps are taken out of it.
struct Step {
  Action action = Action::kAppend;
  uint32_t session = 0;   // who
  uint32_t other = 0;     // fork: where to; snapshot, restore: which; together: how many
  uint32_t n_tokens = 0;  // append, decode, together; truncate: how many to keep, in 1/1024
  uint32_t chunk = 0;     // append: most tokens per step
  uint32_t seed = 0;      // of the tokens
};
using Program = std::vector<Step>;
std::string to_text(const Program& program);

struct MachineOptions {
  uint32_t n_sessions = 4;
  uint32_t max_length = 700;  // tokens of one session
  uint32_t n_steps = 14;
};

class SameBitsMachine {
 public:
  // `subject`: the engine under test. `cold`: the reference, of the same model and level, one
  // thread.
  SameBitsMachine(std::shared_ptr<Engine> subject, std::shared_ptr<Engine> cold,
                  MachineOptions options);

  Program random_program(std::mt19937_64& random) const;
  // The index of the first step after which some session's bits differ, or none.
  std::optional<size_t> first_difference(const Program& program);
  // The shortest program found that still fails.
  Program shrink(Program program);

 private:
  struct Run;
  bool run_step(Run& run, const Step& step);
  bool check(const Session& session);
  bool append_together(std::vector<std::pair<Session*, std::vector<TokenId>>> work);

  std::shared_ptr<Engine> subject_, cold_;
  MachineOptions options_;
  std::map<std::vector<TokenId>, uint64_t> cold_hashes_;
};

}  // namespace okibi::test
