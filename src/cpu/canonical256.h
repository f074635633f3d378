// The super-block formats to the common form; private to canonical.cpp, which clears `m` and `min`
// before it calls.
#pragma once

#include "cpu/canonical.h"

namespace okibi::cpu::canonical256 {

void q2_k(const uint8_t* b, CanonicalBlock256* out);
void q3_k(const uint8_t* b, CanonicalBlock256* out);
void q4_k(const uint8_t* b, CanonicalBlock256* out);
void q5_k(const uint8_t* b, CanonicalBlock256* out);
void q6_k(const uint8_t* b, CanonicalBlock256* out);
void iq1_s(const uint8_t* b, CanonicalBlock256* out);
void iq1_m(const uint8_t* b, CanonicalBlock256* out);
void iq2_xxs(const uint8_t* b, CanonicalBlock256* out);
void iq2_xs(const uint8_t* b, CanonicalBlock256* out);
void iq2_s(const uint8_t* b, CanonicalBlock256* out);
void iq3_xxs(const uint8_t* b, CanonicalBlock256* out);
void iq3_s(const uint8_t* b, CanonicalBlock256* out);
void iq4_xs(const uint8_t* b, CanonicalBlock256* out);
void tq1_0(const uint8_t* b, CanonicalBlock256* out);
void tq2_0(const uint8_t* b, CanonicalBlock256* out);

}  // namespace okibi::cpu::canonical256
