#!/usr/bin/env bash
# Asks the bundled model about a picture, twice; chats with a published model and asks it typed
# questions about one text.
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
eye=models/okibi-eye
show "$program" ask -m $eye/okibi-eye.gguf --mmproj $eye/mmproj-okibi-eye.gguf \
  --image $eye/examples/shop-512x286.png --questions $eye/examples/shop-512x286.json \
  --calibration $eye/calibration.json --repeat 2
show "$program" run -m "$model" -n 96 -p "Write a haiku about a river."
show "$program" run -m "$model" -n 96 -p "Why is the sky blue?"
show "$program" ask -m "$model" --state @models/demo/state.txt --questions models/demo/questions.json
