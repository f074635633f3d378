#!/usr/bin/env bash
# Chats with a model and asks it typed questions about one text.
#   demo.sh PROGRAM MODEL
set -euo pipefail
program="$1"
model="$2"
show() {
  printf '\n$'
  printf ' %q' "$@"
  printf '\n'
  "$@"
}
show "$program" run -m "$model" -p "What is the capital of France?"
show "$program" run -m "$model" -p "Write two sentences about the sea at night."
show "$program" ask -m "$model" --state @models/demo/state.txt --questions models/demo/questions.json
