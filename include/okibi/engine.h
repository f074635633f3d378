// Engine: one loaded model. Immutable and shared; Sessions (session.h) hold everything that
// changes.
//
// Work runs on the engine's own thread. Calls on sessions queue a job there and wait for it;
// several callers at once share batches. Whatever was cached, batched or split, and however many
// threads compute, the same tokens give the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "okibi/activation_type.h"
#include "okibi/picture.h"
#include "okibi/status.h"
#include "okibi/text.h"

namespace okibi {

class Session;
class ExecTrace;
namespace reuse {
class AnswerCache;
}
namespace engine {
class Scheduler;
struct EngineAccess;
}  // namespace engine

// How often what decisions keep was of use.
struct DecisionCacheStats {
  struct Level {
    uint64_t hits = 0, misses = 0, evictions = 0, entries = 0, bytes = 0;
  };
  Level states;   // the shared part of a request, prefilled
  Level answers;  // label logits of one question
};

enum class KvCacheType { kF32, kF16, kQ8_0 };

// Work that long-context models avoid, switched back on to measure what avoiding it is worth. No
// switch changes a bit of any result.
struct SparseOptions {
  bool keep_pooled = true;      // off: pool the index keys of the whole context at every step
  bool attend_selected = true;  // off: read every key and value, mask those not selected
  bool select_blocks = true;    // off: select among cells instead of blocks
};

struct EngineOptions {
  std::string model_path;
  std::string mmproj_path;         // the vision file beside the model; empty: no pictures
  int64_t vision_cache_mib = 128;  // what may be kept of pictures, 0 (nothing) to 4096
  // Decisions: states kept for the next request that begins alike, taken out of the K/V cache as
  // far as nobody else needs it; label logits kept for identical questions. 0 (nothing) to 4096.
  int64_t state_cache_mib = 256;
  int64_t answer_cache_mib = 16;
  std::string cpu_level;    // "reference", "avx2", "avx512", "amx"; empty: the host's best
  int n_threads = 0;        // 0: one per core
  uint32_t n_ctx = 0;       // tokens a session may hold; 0: what the file says, as far as
                            // memory allows
  uint32_t n_sessions = 4;  // sessions of n_ctx tokens that memory is planned for
  KvCacheType kv_type = KvCacheType::kF16;
  ActivationType activations = ActivationType::kInt8;
  uint32_t max_batch_rows = 512;  // tokens in one step
  SparseOptions sparse;
  uint64_t memory_limit_bytes = 0;  // 0: what the system says is available
  std::string chat_layout;          // overrides what the file's template says
  std::function<void(double fraction)> on_load_progress;
};

// What an engine needs in memory and what there is.
struct MemoryPlan {
  struct Row {
    std::string name;
    uint64_t bytes = 0;
  };
  std::vector<Row> rows;
  uint64_t needed_bytes = 0;
  uint64_t available_bytes = 0;
  uint32_t n_ctx = 0;
  bool fits() const { return needed_bytes <= available_bytes; }
  std::string table() const;  // aligned text, with the totals
};

// An attention layer, as far as a query's work depends on the positions before it.
struct AttentionInfo {
  uint64_t row_bytes = 0;   // key and value of one position, all heads
  uint64_t row_macs = 0;    // multiply-adds of one query with one position
  bool only_tails = false;  // only tokens with logits have queries
  // Where blocks are selected (else 0): a query attends to `budget` positions and its open block,
  // and scores one pooled key per block.
  uint32_t block_tokens = 0, budget = 0;
  uint64_t index_key_bytes = 0;
  uint64_t score_macs = 0;  // of one query with one pooled key
};

struct ModelInfo {
  std::string architecture;
  std::string name;
  uint64_t n_parameters = 0;
  uint64_t file_bytes = 0;
  uint32_t n_layers = 0;
  uint32_t n_vocab = 0;
  uint32_t n_ctx_trained = 0;
  uint32_t n_sparse_layers = 0;  // attention layers that select blocks
  uint64_t kv_bytes_per_token = 0;
  uint64_t state_bytes = 0;              // recurrent state of one sequence
  uint64_t weight_bytes_per_token = 0;   // packed weights that one decoded token reads
  uint64_t expert_bytes_per_token = 0;   // of those, the experts that it uses
  uint64_t output_bytes = 0;             // and the output matrix
  uint64_t macs_per_token = 0;           // multiply-adds of all matrices but the output's
  uint64_t tail_macs_per_token = 0;      // of those, which only tokens with logits need
  uint64_t output_macs = 0;              // of the output matrix, per row of logits
  std::vector<AttentionInfo> attention;  // layers with keys and values, in order
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Loads a model. Refuses, before loading, what does not fit, with the memory table.
  static Result<std::shared_ptr<Engine>> open(EngineOptions options);
  // The same checks without loading: the file, its shapes, and the memory it would need.
  static Result<MemoryPlan> plan(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // A new, empty sequence. Fails when no state slot is left.
  Result<std::unique_ptr<Session>> new_session();

  // Pictures; all thread-safe. They fail in words when the engine has no vision file.
  bool has_vision() const;
  const VisionInfo& vision_info() const;  // all zero without vision
  // A picture file's views and their rows, computed or as they are known.
  Result<Picture> encode_picture(std::span<const uint8_t> file, const PictureOptions& options = {});
  // A picture encoded before and still known in whole, by the SHA-256 of its file.
  Result<Picture> find_picture(const std::string& sha256, const PictureOptions& options = {});
  // The tokens with the pictures' rows, in order, at the image tokens among them.
  Result<Prompt> place_pictures(std::vector<TokenId> tokens, std::span<const Picture> pictures);
  VisionCacheStats vision_cache_stats() const;
  DecisionCacheStats decision_cache_stats();
  void clear_decision_caches();
  void clear_vision_cache();

  const Text& text() const;
  const ModelInfo& info() const;
  const MemoryPlan& memory() const;
  uint32_t n_ctx() const;
  uint32_t max_batch_rows() const;
  int n_threads() const;
  const std::string& numeric_identity() const;
  // One line per weight matrix: name, type, kernel.
  std::vector<std::string> describe_weights() const;

  // Profiling: collected while switched on. `take_profile` gives the table and the Chrome trace of
  // what was collected and clears it.
  void set_profiling(bool on);
  struct Profile {
    std::string table;
    std::string chrome_json;
  };
  Profile take_profile();

  // For the layers above (decide/): the queue of the engine thread.
  engine::Scheduler& scheduler();
  reuse::AnswerCache& answer_cache();

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  friend class Session;
  friend struct engine::EngineAccess;
};

}  // namespace okibi
