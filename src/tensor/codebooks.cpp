// The tables of tensor/codebooks.h, generated into codebooks.inc. Nothing else lives here.
#include "tensor/codebooks.h"

namespace okibi {

#include "tensor/codebooks.inc"

}  // namespace okibi
