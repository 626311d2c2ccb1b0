#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Draws the pictures of docs again, with the commands that the pages show. Needs build/release/shardsim, or another build's
# folder as argument.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$(realpath "${1:-build/release}"):$PATH"
export SHARDSIM_DATA="$PWD/scenarios"

grep -h -- '^    shardsim simulate .* --svg docs/images/' docs/strategies/*.md | while IFS= read -r command; do
  eval "$command" >/dev/null
done

# The picture of README: the page of its scenario, as a browser shows it. Left as it is where there is no chromium.
if command -v chromium >/dev/null; then
  page=$(mktemp --suffix .html)
  shardsim simulate scenarios/llama3-8b-fsdp2-64xh100.yaml --html "$page"
  chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,1500 --virtual-time-budget=5000 \
    --screenshot="$PWD/docs/images/report.png" "file://$page" >/dev/null 2>&1
  rm -f "$page"
fi
