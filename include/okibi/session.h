// Session: one sequence of tokens with its state (keys, values, recurrent state). Cheap: forks and
// snapshots share everything that has not changed. One caller at a time per session; different
// sessions may be used from different threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "okibi/engine.h"
#include "okibi/picture.h"
#include "okibi/status.h"
#include "okibi/text.h"

namespace okibi {

enum class Priority { kBackground = 0, kNormal = 1, kDecision = 2 };

struct AppendOptions {
  Priority priority = Priority::kNormal;
  uint32_t max_chunk = 0;                     // most tokens per step; 0: the engine's batch size
  const std::atomic<bool>* cancel = nullptr;  // checked between steps
  // Called on the engine thread after each step with the number of tokens done so far.
  std::function<void(size_t done)> on_progress;
  // When set, called on the engine thread with the logits (n_vocab) of every appended position.
  std::function<void(size_t index, std::span<const float> logits)> on_logits;
  // When set, called on the engine thread for every appended position and every layer that selects
  // blocks (0 .. n_sparse_layers - 1), with the positions that it attends to, ascending.
  std::function<void(size_t index, uint32_t layer, std::span<const uint32_t> positions)>
      on_selection;
};

// A point to which sessions of the same engine can return. Immutable; holds its state while it
// lives.
class Snapshot {
 public:
  Snapshot();
  Snapshot(Snapshot&&) noexcept;
  Snapshot& operator=(Snapshot&&) noexcept;
  ~Snapshot();
  bool valid() const { return state_ != nullptr; }
  size_t n_tokens() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  friend class Session;
};

class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Appends tokens and computes the logits of the last one. On failure (context full, no memory,
  // cancelled) the session is as it was before, except that after a cancel the steps already done
  // stay and n_tokens() says how far it came.
  Status append(std::span<const TokenId> tokens, const AppendOptions& options = {});
  // The same for tokens with rows of pictures among them.
  Status append(const Prompt& prompt, const AppendOptions& options = {});
  // (n_vocab) logits of the last token; empty before the first append. Valid until the next call.
  std::span<const float> logits() const;
  uint64_t logits_hash() const;

  // Appends n_tokens random tokens without running the model: keys, values, index keys and
  // recurrent state are random numbers, the same for the same seed. For measuring at depths that
  // would take hours to reach. No logits belong to it, and truncating into it runs its tokens.
  Status fill_random(size_t n_tokens, uint64_t seed);

  // A session in the same state, sharing memory with this one until they differ.
  Result<std::unique_ptr<Session>> fork();
  Result<Snapshot> snapshot();
  Status restore(const Snapshot& snapshot);
  // Keeps the first n_tokens >= 1 tokens (0: empties the session). Recurrent models return to the
  // deepest point they kept and replay the rest.
  Status truncate(size_t n_tokens);

  const std::vector<TokenId>& tokens() const;
  size_t n_tokens() const { return tokens().size(); }
  Engine& engine() const;

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  friend class Engine;
};

}  // namespace okibi
