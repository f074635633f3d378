// Convolutions, the delta rule and n-grams (kernels/shared/) in the lanes of this level.
#include "cpu/kernels/reference/lanes.h"
#include "cpu/kernels/shared/causal_conv.h"
#include "cpu/kernels/shared/delta_rule.h"
#include "cpu/kernels/shared/ngram_mix.h"

namespace okibi::cpu::reference {

RecurrentKernels recurrent_kernels() {
  return {.causal_conv = causal_conv<Lanes>,
          .ngram_gate = ngram_gate<Lanes>,
          .ngram_conv = ngram_conv<Lanes>,
          .delta_prepare = delta_prepare<Lanes>,
          .delta_rule = delta_rule<Lanes, 8, 4>};
}

}  // namespace okibi::cpu::reference
