// Rows of random weights, made directly in the stored type: the block is filled with random bits
// and its scale set so that the values get the wanted spread. Much faster than quantising random
// floats, and as good where only the speed of reading them matters: codes are uniform, which real
// weights are not.
//
// A row depends on (seed, tensor name, row number) and on nothing else.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "okibi/status.h"
#include "tensor/dtype.h"

namespace okibi::model {

class RandomRows {
 public:
  // The error says which types can be made. `mean` is used by F32, F16 and BF16 only; block types
  // have mean 0.
  static Result<RandomRows> create(DType type, float mean, float std_dev, uint64_t seed,
                                   std::string_view tensor_name);

  // Row number `row`, n values (a multiple of the block size), into row_bytes(type, n) bytes.
  void fill(uint64_t row, uint64_t n, uint8_t* dst) const;

 private:
  // How the scale of a block is stored.
  struct Scales {
    uint16_t d = 0, m = 0;  // f16 bits; MXFP4: d is the exponent byte
  };

  RandomRows() = default;
  void fill_floats(uint64_t key, uint64_t n, uint8_t* dst) const;
  void fill_blocks(uint64_t key, uint64_t n, uint8_t* dst) const;
  void set_scales(uint8_t* block, const Scales& scales) const;

  DType type_ = DType::kF32;
  float low_ = 0.0f, span_ = 0.0f;  // floats: uniform in [low, low + span)
  int d_at_ = -1, m_at_ = -1;       // where a block keeps scale and minimum
  std::vector<Scales> scales_;      // sixteen of similar size; a block takes one at random
  uint64_t tensor_key_ = 0;
};

// True for the types RandomRows makes.
bool can_synthesize(DType type);

}  // namespace okibi::model
