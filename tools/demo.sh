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
show "$program" run -m "$model" -n 96 -p "Write a haiku about a river."
show "$program" run -m "$model" -n 96 -p "Why is the sky blue?"
show "$program" ask -m "$model" --state @models/demo/state.txt --questions models/demo/questions.json
