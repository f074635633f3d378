#!/usr/bin/env bash
# Installs the Debian packages of the named groups of tools/packages.txt that are missing, and says
# what it does. Does nothing, and needs no rights, when everything is there.
set -euo pipefail

list="$(dirname "$0")/packages.txt"
missing=()
for group in "$@"; do
  while read -r name; do
    status="$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null || true)"
    [ "$status" = installed ] || missing+=("$name")
  done < <(awk -v g="$group" '$1 == g { print $2 }' "$list")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "packages: this machine has no apt-get; install the equivalents of: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "packages: run as root (there is no sudo): apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "packages: installing with apt-get: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}"
