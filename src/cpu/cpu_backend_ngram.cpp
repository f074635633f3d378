// Hashed n-grams: which rows of a table the step's tokens want, having them read, and the rows
// themselves, straight from the mapped file.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "cpu/cpu_backend_impl.h"
#include "ops/ngram_hash.h"
#include "tensor/dequantize.h"

namespace okibi::cpu {
namespace {

// The longest n-gram, in tokens.
constexpr size_t kMaxOrder = 8;

uintptr_t page_of(const uint8_t* p) {
  return reinterpret_cast<uintptr_t>(p) / 4096;
}

}  // namespace

Result<ops::NgramTable> CpuBackend::add_ngram_table(const ops::NgramTableSource& source) {
  const size_t order = source.multipliers.size();
  if (order < 2 || order > kMaxOrder || source.heads_per_order < 1 ||
      source.heads.size() != (order - 1) * static_cast<size_t>(source.heads_per_order)) {
    return invalid_argument(
        fmt::format("n-gram table: {} multipliers with {} heads each do not make {} heads", order,
                    source.heads_per_order, source.heads.size()));
  }
  const DTypeTraits& traits = traits_of(source.type);
  if (!traits.is_weight || source.row_width <= 0 || source.row_width % traits.block_size != 0) {
    return invalid_argument(fmt::format(
        "n-gram table: expected rows of a positive multiple of {} values ({}), found {}",
        traits.block_size, traits.name, source.row_width));
  }
  for (const auto& head : source.heads) {
    if (head.rows == nullptr || head.n_rows == 0) {
      return invalid_argument("n-gram table: a head without rows");
    }
  }
  ngram_tables_.push_back(source);
  return ops::NgramTable{static_cast<int32_t>(ngram_tables_.size() - 1),
                         static_cast<int64_t>(source.heads.size()) * source.row_width};
}

const ops::NgramTableSource& CpuBackend::ngram_table(ops::NgramTable table) const {
  CHECK(table.id >= 0 && static_cast<size_t>(table.id) < ngram_tables_.size(), "table %d of %zu",
        table.id, ngram_tables_.size());
  return ngram_tables_[static_cast<size_t>(table.id)];
}

template <typename Fn>
void CpuBackend::for_ngram_rows(const ops::NgramTableSource& source, uint32_t row,
                                const Fn& fn) const {
  const size_t order = source.multipliers.size();
  const ops::SequenceSpan& s = plan_->sequences[plan_->row_sequence[row]];
  const size_t n_before = row - s.first_row;  // in this step
  CHECK(s.past_tokens.size() >= std::min<size_t>(s.n_past, order - 1),
        "expected the last %zu of %u past tokens, found %zu", order - 1, s.n_past,
        s.past_tokens.size());
  int32_t before[kMaxOrder];
  size_t n = 0;  // as many as there are, the nearest last
  for (size_t back = order - 1; back >= 1; --back) {
    if (back <= n_before) {
      before[n++] = plan_->tokens[row - back];
    } else if (back - n_before <= s.past_tokens.size()) {
      before[n++] = s.past_tokens[s.past_tokens.size() - (back - n_before)];
    }
  }
  int32_t window[kMaxOrder];
  uint64_t hashes[kMaxOrder];
  ops::ngram_window(plan_->tokens[row], {before, n}, source.reset_token, {window, order});
  ops::ngram_hashes({window, order}, source.multipliers, {hashes, order - 1});
  const uint64_t bytes = row_bytes(source.type, static_cast<uint64_t>(source.row_width));
  for (size_t h = 0; h < source.heads.size(); ++h) {
    const auto& head = source.heads[h];
    const uint64_t hash = hashes[h / static_cast<size_t>(source.heads_per_order)];
    fn(h, head.rows + hash % head.n_rows * bytes);
  }
}

// Rows lie anywhere in a table of many gigabytes: what counts is the pages, each asked for once. A
// request stays inside its head, whose rows may be a tensor of their own.
void CpuBackend::ngram_prefetch(ops::NgramTable handle) {
  const ZoneTimer timer(*this, Zone::kNgram);
  check_all_rows();
  const ops::NgramTableSource& source = ngram_table(handle);
  if (!source.prefetch) return;
  const uint64_t bytes = row_bytes(source.type, static_cast<uint64_t>(source.row_width));
  ngram_rows_.clear();
  for (uint32_t r = 0; r < plan_->n_rows; ++r) {
    for_ngram_rows(source, r, [&](size_t h, const uint8_t* row) {
      ngram_rows_.push_back({h, row});
    });
  }
  std::sort(ngram_rows_.begin(), ngram_rows_.end());
  for (size_t begin = 0, end = 0; begin < ngram_rows_.size(); begin = end) {
    const auto [head, first] = ngram_rows_[begin];
    const uint8_t* last = first;
    const auto joins = [&](const std::pair<size_t, const uint8_t*>& next) {
      return next.first == head && page_of(next.second) <= page_of(last + bytes - 1) + 1;
    };
    for (end = begin + 1; end < ngram_rows_.size() && joins(ngram_rows_[end]); ++end) {
      last = ngram_rows_[end].second;
    }
    source.prefetch(first, static_cast<uint64_t>(last - first) + bytes);
  }
}

void CpuBackend::ngram_embed(ops::NgramTable handle, ops::Rows out) {
  const ZoneTimer timer(*this, Zone::kNgram);
  check_all_rows();
  const ops::NgramTableSource& source = ngram_table(handle);
  RowsBuffer& y = output(out, plan_->n_rows, handle.cols);
  for_rows(plan_->n_rows, handle.cols, [&](int64_t r, int) {
    for_ngram_rows(source, static_cast<uint32_t>(r), [&](size_t h, const uint8_t* row) {
      dequantize_row(source.type, row, source.row_width,
                     y.row(r) + static_cast<int64_t>(h) * source.row_width);
    });
  });
}

}  // namespace okibi::cpu
