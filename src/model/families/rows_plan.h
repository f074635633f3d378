// The activation buffers of a model as one list, so that planning their bytes and adding them
// cannot differ.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ops.h"

namespace okibi::model {

class RowsPlan {
 public:
  // `where` becomes (max_rows, cols), for the lifetime of the list's owner.
  void row(ops::Rows* where, int64_t cols) { rows_.push_back({where, cols, false}); }
  // `where` becomes (max_outputs, cols).
  void output(ops::Rows* where, int64_t cols) { rows_.push_back({where, cols, true}); }

  uint64_t bytes(int64_t max_rows, int64_t max_outputs) const {
    int64_t n = 0;
    for (const Entry& e : rows_) n += e.cols * (e.is_output ? max_outputs : max_rows);
    return static_cast<uint64_t>(n) * sizeof(float);
  }
  Status add(ops::Backend& backend, int64_t max_rows, int64_t max_outputs) const {
    for (const Entry& e : rows_) {
      OKIBI_ASSIGN_OR_RETURN(*e.where,
                             backend.add_rows(e.is_output ? max_outputs : max_rows, e.cols));
    }
    return ok_status();
  }

 private:
  struct Entry {
    ops::Rows* where;
    int64_t cols;
    bool is_output;
  };
  std::vector<Entry> rows_;
};

}  // namespace okibi::model
