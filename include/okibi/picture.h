// Pictures in prompts. A picture file becomes views, a view becomes rows that stand at image-token
// positions of a prompt. What is known of a file or a view is not computed again
// (EngineOptions::vision_cache_mib), and never changes a bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "okibi/status.h"
#include "okibi/text.h"

namespace okibi {

namespace reuse {
struct ViewRows;  // opaque here
}

struct PictureOptions {
  std::string scope;        // callers of different scopes share nothing that is kept
  uint32_t max_tokens = 0;  // refuse pictures that need more prompt tokens; 0: the context
};

// A picture ready for prompts. Holds its rows, so they stay in memory while it lives.
struct Picture {
  struct View {
    int32_t width = 0, height = 0;  // px, as the encoder sees it
    uint32_t n_tokens = 0;
    std::string sha256;  // of sides and pixels
    std::shared_ptr<const reuse::ViewRows> rows;
  };
  std::string sha256;             // of the file's bytes
  int32_t width = 0, height = 0;  // px, upright
  bool is_tiled = false;
  int32_t columns = 1, rows = 1;  // of the tiles
  bool has_thumbnail = false;     // the last view then
  std::vector<View> views;

  // The block that stands for the picture in a prompt, as text for a trusted PromptPart: start and
  // end markers, row and column labels, image tokens.
  std::string prompt_text;
  uint32_t n_image_tokens = 0;   // positions that take rows
  uint32_t n_prompt_tokens = 0;  // with the markers

  // Where this picture came from, and what it took.
  bool file_was_known = false;  // L0: neither decoded nor resized
  uint32_t views_known = 0;     // L1: rows that were there or that another caller just computed
  uint32_t views_encoded = 0;
  double decode_seconds = 0;  // decoding, resizing, digests
  double resize_seconds = 0;  // of these, resizing and cutting into views
  double encode_seconds = 0;  // encoding, with waiting for the engine thread
};

// Tokens, and rows that take the place of the embeddings of some of them.
struct Prompt {
  struct Rows {
    size_t first = 0;  // position in `tokens` of the first of them
    std::shared_ptr<const reuse::ViewRows> rows;
  };
  std::vector<TokenId> tokens;
  std::vector<Rows> rows;  // ascending, apart from each other
};

// How often what was kept was of use; per level.
struct VisionCacheStats {
  struct Level {
    uint64_t hits = 0, misses = 0, joined = 0, failures = 0;
    uint64_t evictions = 0, not_stored = 0, entries = 0, bytes = 0;
  };
  Level bytes;  // L0: file bytes to views
  Level views;  // L1: view to rows
  uint64_t budget_bytes = 0;
};

// What an engine's vision file is.
struct VisionInfo {
  std::string name;
  uint64_t n_parameters = 0, file_bytes = 0;
  uint32_t n_layers = 0;
  uint32_t max_view_tokens = 0;
  bool has_input_norm = false;  // the projector's, in first-generation files
  std::string identity;         // SHA-256 over all that rows depend on besides the pixels
};

}  // namespace okibi
