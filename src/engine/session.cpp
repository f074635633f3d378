// Sessions over the scheduler: every method queues something for the engine thread and waits.
#include "okibi/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/hash.h"
#include "engine/engine_state.h"
#include "engine/picture_rows.h"
#include "engine/scheduler.h"
#include "reuse/vision_cache.h"

namespace okibi {
namespace {

// Recurrent state cannot be cut back, so a session of a recurrent model keeps a few points to
// return to: one before an append that begins this many tokens after the last such point.
constexpr size_t kCheckpointDistance = 256;
constexpr size_t kMaxCheckpoints = 4;

using PictureRows = std::vector<Prompt::Rows>;

// Forgets the rows that begin at position n or later.
void cut_rows(PictureRows& rows, size_t n) {
  std::erase_if(rows, [n](const Prompt::Rows& r) { return r.first >= n; });
}

}  // namespace

struct Snapshot::State {
  std::shared_ptr<Engine> engine;
  std::optional<reuse::Sequence> sequence;
  PictureRows rows;
  std::vector<float> logits;
  size_t n_tokens = 0;

  ~State() {
    engine->scheduler().call([this](engine::Core&) { sequence.reset(); });
  }
};

Snapshot::Snapshot() = default;
Snapshot::Snapshot(Snapshot&&) noexcept = default;
Snapshot& Snapshot::operator=(Snapshot&&) noexcept = default;
Snapshot::~Snapshot() = default;
size_t Snapshot::n_tokens() const {
  return state_ == nullptr ? 0 : state_->n_tokens;
}

struct Session::State {
  std::shared_ptr<Engine> engine;
  std::optional<reuse::Sequence> sequence;   // engine thread
  std::vector<reuse::Sequence> checkpoints;  // engine thread; ascending
  PictureRows rows;                          // of tokens(), by absolute position; held for replays
  std::vector<float> logits;
  engine::Work work;

  engine::Scheduler& scheduler() { return engine->scheduler(); }
  bool is_recurrent() { return engine->info().state_bytes > 0; }

  ~State() {
    scheduler().call([this](engine::Core&) {
      sequence.reset();
      checkpoints.clear();
    });
  }

  // Engine thread.
  void keep_checkpoint(engine::Core& core) {
    const size_t n = sequence->n_tokens();
    const size_t last = checkpoints.empty() ? 0 : checkpoints.back().n_tokens();
    if (n < last + kCheckpointDistance) return;
    // The last slots are for work, not for convenience.
    if (core.n_free_slots() < core.sizes().n_slots / 4) return;
    if (checkpoints.size() == kMaxCheckpoints) checkpoints.erase(checkpoints.begin());
    checkpoints.push_back(sequence->clone());
  }

  // Appends tokens, with the rows that `rows` has for their positions.
  Status run(std::span<const TokenId> tokens, const AppendOptions& options) {
    work.sequence = &*sequence;
    work.tokens.assign(tokens.begin(), tokens.end());
    engine::list_embeddings(rows, sequence->n_tokens(), tokens.size(), &work.embeddings);
    work.priority = options.priority;
    work.max_chunk = options.max_chunk;
    work.cancel = options.cancel;
    work.on_progress = options.on_progress;
    work.all_positions = static_cast<bool>(options.on_logits);
    const auto* each = options.on_logits ? &options.on_logits : nullptr;
    work.on_logits = [this, each](size_t index, std::span<const float> values) {
      if (each != nullptr) (*each)(index, values);
      if (index + 1 == work.tokens.size()) logits.assign(values.begin(), values.end());
    };
    work.on_selection = options.on_selection;
    work.before_start = nullptr;
    if (is_recurrent()) work.before_start = [this](engine::Core& core) { keep_checkpoint(core); };
    work.finished.reset();
    return scheduler().run(&work);
  }
};

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Engine::new_session() {
  auto state = std::make_unique<Session::State>();
  state->engine = shared_from_this();
  scheduler().call([&](engine::Core& core) { state->sequence.emplace(core.new_sequence()); });
  return std::unique_ptr<Session>(new Session(std::move(state)));
}

Engine& Session::engine() const {
  return *state_->engine;
}
const std::vector<TokenId>& Session::tokens() const {
  return state_->sequence->tokens();
}
std::span<const float> Session::logits() const {
  return state_->logits;
}
uint64_t Session::logits_hash() const {
  return hash_floats(state_->logits);
}

Status Session::append(std::span<const TokenId> tokens, const AppendOptions& options) {
  if (tokens.empty()) return ok_status();
  const int32_t n_vocab = static_cast<int32_t>(state_->engine->info().n_vocab);
  for (TokenId id : tokens) {
    if (id < 0 || id >= n_vocab) {
      return invalid_argument(
          fmt::format("token id {}: the vocabulary has ids 0 to {}", id, n_vocab - 1));
    }
  }
  const size_t n_before = n_tokens();
  Status status = state_->run(tokens, options);
  if (!status.ok() && n_tokens() != n_before) state_->logits.clear();
  return status;
}

Status Session::append(const Prompt& prompt, const AppendOptions& options) {
  const engine::Vision* vision = state_->engine->state_->vision.get();
  size_t end = 0;  // of the rows before
  for (const Prompt::Rows& r : prompt.rows) {
    if (r.rows == nullptr || vision == nullptr || r.rows->identity != vision->identity()) {
      return invalid_argument("append: the prompt has a picture that another model encoded");
    }
    if (r.first < end || r.first + r.rows->n_rows > prompt.tokens.size()) {
      return invalid_argument(
          fmt::format("append: a picture's {} rows from position {} on do not fit behind {} and "
                      "into {} tokens",
                      r.rows->n_rows, r.first, end, prompt.tokens.size()));
    }
    end = r.first + r.rows->n_rows;
  }
  const size_t n_before = n_tokens();
  for (const Prompt::Rows& r : prompt.rows) {
    state_->rows.push_back({n_before + r.first, r.rows});
  }
  Status status = append(prompt.tokens, options);
  if (!status.ok()) cut_rows(state_->rows, n_tokens());
  return status;
}

Result<std::unique_ptr<Session>> Session::fork() {
  auto state = std::make_unique<State>();
  state->engine = state_->engine;
  state_->scheduler().call(
      [&](engine::Core&) { state->sequence.emplace(state_->sequence->clone()); });
  state->rows = state_->rows;
  state->logits = state_->logits;
  return std::unique_ptr<Session>(new Session(std::move(state)));
}

Result<Snapshot> Session::snapshot() {
  auto state = std::make_unique<Snapshot::State>();
  state->engine = state_->engine;
  state_->scheduler().call(
      [&](engine::Core&) { state->sequence.emplace(state_->sequence->clone()); });
  state->rows = state_->rows;
  state->logits = state_->logits;
  state->n_tokens = n_tokens();
  Snapshot snapshot;
  snapshot.state_ = std::move(state);
  return snapshot;
}

Status Session::restore(const Snapshot& snapshot) {
  if (!snapshot.valid() || snapshot.state_->engine != state_->engine) {
    return invalid_argument("restore: the snapshot is empty or of another engine");
  }
  state_->scheduler().call([&](engine::Core&) {
    *state_->sequence = snapshot.state_->sequence->clone();
    // Points kept on another path than the restored one are of no use.
    std::erase_if(state_->checkpoints, [&](const reuse::Sequence& c) {
      const auto& now = state_->sequence->tokens();
      return c.n_tokens() > now.size() ||
             !std::equal(c.tokens().begin(), c.tokens().end(), now.begin()) ||
             engine::first_row_difference(state_->rows, snapshot.state_->rows) < c.n_tokens();
    });
  });
  state_->rows = snapshot.state_->rows;
  state_->logits = snapshot.state_->logits;
  return ok_status();
}

Status Session::fill_random(size_t n_tokens, uint64_t seed) {
  if (n_tokens == 0) return ok_status();
  if (n_tokens > state_->engine->n_ctx()) {
    return resource_exhausted(fmt::format("fill_random: {} tokens are over the context of {}",
                                          n_tokens, state_->engine->n_ctx()));
  }
  Status status;
  state_->scheduler().call([&](engine::Core& core) {
    const auto n = static_cast<uint32_t>(n_tokens);
    status = core.prepare(*state_->sequence, n);
    if (status.ok()) core.fill_random(*state_->sequence, n, seed);
  });
  if (status.ok()) state_->logits.clear();
  return status;
}

Status Session::truncate(size_t n_keep) {
  if (n_keep > n_tokens()) {
    return invalid_argument(
        fmt::format("truncate to {} tokens: the session has {}", n_keep, n_tokens()));
  }
  if (n_keep == n_tokens()) return ok_status();
  const std::vector<TokenId> kept(tokens().begin(), tokens().begin() + n_keep);
  state_->logits.clear();
  // The last kept token is always computed again: its logits are what the caller sees next.
  state_->scheduler().call([&](engine::Core& core) {
    std::erase_if(state_->checkpoints,
                  [&](const reuse::Sequence& c) { return c.n_tokens() >= n_keep; });
    if (n_keep == 0) {
      state_->sequence->clear();
    } else if (!state_->is_recurrent()) {
      state_->sequence->cut(static_cast<uint32_t>(n_keep - 1));
    } else if (!state_->checkpoints.empty()) {
      *state_->sequence = state_->checkpoints.back().clone();
    } else {
      *state_->sequence = core.new_sequence();
    }
  });
  cut_rows(state_->rows, n_keep);
  if (n_keep == 0) return ok_status();
  return state_->run(std::span(kept).subspan(n_tokens()), {});
}

}  // namespace okibi
