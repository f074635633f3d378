// See split_ple.h.
#include "apps/split_ple.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/out_file.h"
#include "apps/printable.h"
#include "apps/progress.h"
#include "apps/terminal.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

namespace okibi::apps {
namespace {

constexpr const char* kJoinedTable = "per_layer_token_embd.weight";
constexpr uint64_t kPieceBytes = uint64_t{16} << 20;

std::string head_name(size_t head) {
  return fmt::format("ple_ngram_embd.{}.weight", head);
}

// A tensor to be, as a run of bytes of one there is.
struct Piece {
  std::string name;
  const gguf::TensorInfo* source;
  std::array<uint64_t, 4> ne;
  int n_dims;
  uint64_t offset, n_bytes;  // in the source
};

struct Heads {
  std::vector<uint64_t> offsets, sizes;  // rows of the joined table
};

Result<Heads> read_heads(const gguf::File& file, const gguf::TensorInfo& table) {
  Heads heads;
  OKIBI_ASSIGN_OR_RETURN(heads.sizes, file.get_u64s("qwen4exp.ple.head_vocab_sizes"));
  OKIBI_ASSIGN_OR_RETURN(heads.offsets, file.get_u64s("qwen4exp.ple.head_offsets"));
  if (heads.sizes.empty() || heads.sizes.size() != heads.offsets.size()) {
    return bad_data(
        fmt::format("qwen4exp.ple: {} head_vocab_sizes and {} head_offsets, expected "
                    "one of each per head",
                    heads.sizes.size(), heads.offsets.size()));
  }
  const uint64_t n_rows = table.n_rows();
  for (size_t h = 0; h < heads.sizes.size(); ++h) {
    const uint64_t first = heads.offsets[h], n = heads.sizes[h];
    if (n > 0 && first <= n_rows && n <= n_rows - first) continue;
    return bad_data(fmt::format("{}: head {} has {} rows from row {} on, the table has {}",
                                table.name, h, n, first, n_rows));
  }
  return heads;
}

Result<const gguf::TensorInfo*> find_joined_table(const gguf::File& file) {
  OKIBI_ASSIGN_OR_RETURN(const std::string_view architecture,
                         file.get_string("general.architecture"));
  if (architecture != "qwen4exp") {
    return invalid_argument(
        fmt::format("general.architecture is \"{}\"; only \"qwen4exp\" has an n-gram table",
                    printable(architecture, 40)));
  }
  const bool is_split = file.find_tensor(head_name(0)) != nullptr;
  if (const gguf::TensorInfo* table = file.find_tensor(kJoinedTable)) {
    if (!is_split) return table;
    return bad_data(
        fmt::format("has both {} and {}; expected one of them", kJoinedTable, head_name(0)));
  }
  if (is_split) {
    return invalid_argument("the n-gram table already is one tensor per head: nothing to do");
  }
  return invalid_argument(fmt::format("there is no tensor {} to split", kJoinedTable));
}

// The tensors of the result, in file order.
Result<std::vector<Piece>> plan_pieces(const gguf::File& file) {
  OKIBI_ASSIGN_OR_RETURN(const gguf::TensorInfo* table, find_joined_table(file));
  OKIBI_ASSIGN_OR_RETURN(const Heads heads, read_heads(file, *table));
  std::vector<Piece> pieces;
  for (const gguf::TensorInfo& info : file.tensors()) {
    if (&info != table) {
      pieces.push_back({info.name, &info, info.ne, info.n_dims, 0, info.n_bytes});
      continue;
    }
    const uint64_t one_row = row_bytes(info.type, info.ne[0]);
    for (size_t h = 0; h < heads.sizes.size(); ++h) {
      pieces.push_back({head_name(h),
                        &info,
                        {info.ne[0], heads.sizes[h], 1, 1},
                        2,
                        heads.offsets[h] * one_row,
                        heads.sizes[h] * one_row});
    }
  }
  return pieces;
}

std::span<const uint64_t> shape_of(const Piece& piece) {
  return std::span(piece.ne).first(static_cast<size_t>(piece.n_dims));
}

Status write_pieces(const gguf::File& file, const std::vector<Piece>& pieces,
                    const std::string& out) {
  gguf::Writer writer;
  for (const gguf::File::Entry& entry : file.entries()) writer.copy(entry);
  // The result is one file.
  for (const char* key : {"split.no", "split.count", "split.tensors.count"}) writer.remove(key);
  for (const Piece& piece : pieces) {
    writer.add_tensor(piece.name, piece.source->type, shape_of(piece));
  }
  OKIBI_RETURN_IF_ERROR(writer.begin(out));
  constexpr double kMiB = 1 << 20;
  double total = 0, done = 0;
  for (const Piece& piece : pieces) total += static_cast<double>(piece.n_bytes) / kMiB;
  Progress progress("copying", "MiB");
  const std::atomic<bool>& interrupted = catch_interrupts();
  for (const Piece& piece : pieces) {
    const auto bytes = file.data(*piece.source).subspan(piece.offset, piece.n_bytes);
    for (uint64_t at = 0; at < bytes.size(); at += kPieceBytes) {
      const uint64_t n = std::min(kPieceBytes, bytes.size() - at);
      progress.update(done, total, piece.name);
      // Leaving through the status lets the writer remove its temporary file.
      if (interrupted) return cancelled("interrupted; nothing was written");
      OKIBI_RETURN_IF_ERROR(writer.write(bytes.subspan(at, n)));
      done += static_cast<double>(n) / kMiB;
    }
    file.release(*piece.source);
  }
  progress.finish();
  return writer.finish();
}

// The result, read back with all checks, must be what was planned.
Status validate(const std::string& out, const std::vector<Piece>& pieces) {
  OKIBI_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(out));
  for (const Piece& piece : pieces) {
    const gguf::TensorInfo* found = file.find_tensor(piece.name);
    if (found != nullptr && found->type == piece.source->type && found->ne == piece.ne) continue;
    return bad_data(
        fmt::format("{}: tensor {} was not read back as written", out, printable(piece.name, 100)));
  }
  return ok_status();
}

}  // namespace

Status split_ple(const std::string& in, const std::string& out) {
  OKIBI_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(in));
  OKIBI_RETURN_IF_ERROR(check_out_is_not_in(in, out, file));
  Result<std::vector<Piece>> pieces = plan_pieces(file);
  if (!pieces.ok()) return pieces.status().with_context(printable(in, 400));
  OKIBI_RETURN_IF_ERROR(write_pieces(file, *pieces, out));
  OKIBI_RETURN_IF_ERROR(validate(out, *pieces));
  const size_t n_heads = pieces->size() - (file.tensors().size() - 1);
  uint64_t padding = file.find_tensor(kJoinedTable)->n_rows();
  for (const Piece& piece : *pieces) {
    if (piece.source->name == kJoinedTable) padding -= std::min(padding, piece.ne[1]);
  }
  fmt::print("{}: {} tensors, the n-gram table as {} of them; {} padding rows left out\n",
             printable(out, 400), pieces->size(), n_heads, padding);
  return ok_status();
}

}  // namespace okibi::apps
