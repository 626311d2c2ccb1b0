#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Draws the pictures of docs/strategies again, with the commands that the pages show. Needs build/release/shardsim, or another build's
# folder as argument.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$(realpath "${1:-build/release}"):$PATH"
export SHARDSIM_DATA="$PWD/scenarios"

grep -h -- '^    shardsim simulate .* --svg docs/images/' docs/strategies/*.md | while IFS= read -r command; do
  eval "$command" >/dev/null
done
