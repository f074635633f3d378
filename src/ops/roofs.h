// What a machine can do at most, measured; benchmarks print the share of it that was reached.
#pragma once

#include <string>

namespace okibi::ops {

struct Roofs {
  std::string int8_name;      // the instruction behind int8_ops_per_s
  double int8_ops_per_s = 0;  // two per multiply-add
  double bf16_ops_per_s = 0;  // by the level's bfloat16 instruction; 0: it has none
  double float_ops_per_s = 0;
  double read_bytes_per_s = 0;  // from a buffer of the size asked for
};

}  // namespace okibi::ops
