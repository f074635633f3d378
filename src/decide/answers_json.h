// The response body of the System One API. Numbers are written with as many digits as a double
// needs. Public door: answers_json (okibi/decision.h).
#pragma once

#include <string>

#include "okibi/decision.h"

namespace okibi::decision {

// A double as JSON: the shortest text that reads back to the same bits, always with a point or an
// exponent, so that no client takes it for an integer.
std::string number_json(double value);
// One answer as its object.
std::string answer_json(const Question& question, const Answer& answer);

}  // namespace okibi::decision
