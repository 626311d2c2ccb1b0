#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Writes docs/accuracy.md and the recorded figures (scenarios/validation/figures.json) from the measurements in scenarios/validation.
# CI fails when a figure gets worse than recorded; run this, and look at the change, when a change is meant.
set -e
cd "$(dirname "$0")/.."
program=${SHARDSIM:-build/release/shardsim}
[ -x "$program" ] || { echo "build $program first: scripts/build.sh" >&2; exit 3; }
SHARDSIM_DATA="$PWD/scenarios" "$program" validate --markdown docs/accuracy.md --record scenarios/validation/figures.json > /dev/null
git diff --stat -- docs/accuracy.md scenarios/validation/figures.json 2> /dev/null || true
