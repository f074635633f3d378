// Residual streams and gates (kernels/shared/streams.h) in the lanes of this level.
#include "cpu/kernels/shared/streams.h"

#include "cpu/kernels/avx2/lanes.h"

namespace okibi::cpu::avx2 {

StreamKernels stream_kernels() {
  return streams_of<Lanes>();
}

}  // namespace okibi::cpu::avx2
