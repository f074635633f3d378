// Feed-forward layers as one operation: where a level's products take rounded factors, the first
// product leaves the input of the second one where its floats would have been.
#include "base/check.h"
#include "cpu/bf16_tiles.h"
#include "cpu/cpu_backend_impl.h"

namespace okibi::cpu {

bool CpuBackend::takes_bf16(ops::Weight w) const {
  return weight(w).kernels->activation == ActivationFormat::kBf16;
}

// inout += `down` times what `rise` leaves in the memory of `between`.
void CpuBackend::rise_and_fall(const RowsBuffer& input, Product rise, RowsBuffer& between,
                               const PackedWeight& down, ops::Rows inout) {
  const ZoneTimer timer(*this, Zone::kLinear, down.kernels->gemm_name);
  const int64_t n = input.n_valid;
  uint8_t* tiles = between.memory.data();
  CHECK(static_cast<uint64_t>(bf16_tiles_bytes(1, n, between.cols)) <= between.memory.size(),
        "%lld rows of %lld", static_cast<long long>(n), static_cast<long long>(between.cols));
  rise.input = quantize(input, n, ActivationFormat::kBf16, /*for_gemm=*/true);
  rise.rounded.tiles = tiles;
  rise.rounded.n_pairs = bf16_pairs(n);
  run_products({&rise, 1}, n, /*accumulate=*/false);
  RowsBuffer& out = output(inout, n, down.matrix.n_out);
  const Product fall{&down, bf16_activations(tiles, n), out.row(0), out.stride};
  run_products({&fall, 1}, n, /*accumulate=*/true);
}

void CpuBackend::feed_forward(ops::Rows in, ops::Weight up, ops::Vector bias, ops::Gelu kind,
                              ops::Rows hidden, ops::Weight down, ops::Rows inout) {
  const PackedWeight& first = weight(up);
  const PackedWeight& second = weight(down);
  const RowsBuffer& input = any_rows(in);
  const int64_t n = input.n_valid;
  RowsBuffer& between = output(hidden, n, up.n_out);
  CHECK(up.n_in == input.cols && down.n_in == up.n_out && in.id != hidden.id &&
            hidden.id != inout.id && in.id != inout.id && vector(bias).size() == size_t(up.n_out),
        "%s, then %s", first.name.c_str(), second.name.c_str());
  if (kind != ops::Gelu::kTanh || !takes_bf16(up) || !takes_bf16(down)) {
    project(in, {&up, 1}, {&hidden, 1});
    gelu(hidden, bias, kind);
    project_add(hidden, down, inout);
    return;
  }
  rise_and_fall(
      input,
      {.weight = &first, .rounded = {.as = RoundedOutput::As::kGelu, .bias = vector(bias).data()}},
      between, second, inout);
}

void CpuBackend::gated_feed_forward(ops::Rows in, ops::Weight gate, ops::Weight up,
                                    ops::Rows hidden, ops::Rows hidden2, ops::Weight down,
                                    ops::Rows inout) {
  const PackedWeight& first = weight(gate);
  const PackedWeight& second = weight(up);
  const bool is_same_shape = gate.n_in == up.n_in && gate.n_out == up.n_out;
  if (!is_same_shape || !takes_bf16(gate) || !takes_bf16(up) || !takes_bf16(down)) {
    const ops::Weight weights[] = {gate, up};
    const ops::Rows outs[] = {hidden, hidden2};
    project(in, weights, outs);
    silu_mul(hidden, hidden2, hidden);
    project_add(hidden, down, inout);
    return;
  }
  const RowsBuffer& input = any_rows(in);
  RowsBuffer& between = output(hidden, input.n_valid, gate.n_out);
  CHECK(gate.n_in == input.cols && down.n_in == gate.n_out && in.id != hidden.id &&
            hidden.id != inout.id && in.id != inout.id,
        "%s, then %s", first.name.c_str(), weight(down).name.c_str());
  rise_and_fall(input,
                {.weight = &first,
                 .rounded = {.as = RoundedOutput::As::kSiluProduct,
                             .up = second.matrix.data,
                             .up_scale = second.matrix.scale}},
                between, weight(down), inout);
}

}  // namespace okibi::cpu
