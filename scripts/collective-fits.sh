#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes the collectives of the shipped profiles anew from a table of published times (gpu,nccl_version,collective,ranks,bytes,time_us):
#   scripts/collective-fits.sh nccl_collectives.csv
# The table is aiconfigurator's (Apache-2.0), decoded; the rows stay where they are, the profiles hold segments.
set -euo pipefail
table=$(realpath "$1")
cd "$(dirname "$0")/.."
program=${SHARDSIM:-build/release/shardsim}
[ -x "$program" ] || { echo "build $program first: scripts/build.sh" >&2; exit 3; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Between "collectives:" and "origins:" at the start of a line.
block() { awk '/^origins:/ {inside = 0} /^collectives:/ {inside = 1} inside' "$1"; }
rest() { awk '/^origins:/ {inside = 0} /^collectives:/ {inside = 1} !inside' "$1"; }
for pair in a100-sxm-80:a100_sxm h100-sxm:h100_sxm h200-sxm:h200_sxm b200-sxm:b200_sxm b300-sxm:b300_sxm gb200-nvl72:gb200 gb300-nvl72:gb300 l40s:l40s; do
  name=${pair%%:*} gpu=${pair##*:} profile=scenarios/clusters/${pair%%:*}.yaml
  [ -f "$profile" ] || continue
  rest "$profile" > "$work/base.yaml"
  "$program" calibrate import collectives "$table" --gpu "$gpu" --base "$work/base.yaml" -o "$work/with.yaml" --quiet
  {
    awk '/^origins:/ {exit} {print}' "$work/base.yaml"
    echo "collectives:  # scripts/collective-fits.sh: shardsim calibrate import collectives nccl_collectives.csv --gpu $gpu --base clusters/$name.yaml"
    block "$work/with.yaml" | tail -n +2 | sed 's/fitted: nccl_collectives.csv/fitted: nccl_collectives.csv of aiconfigurator/'
    awk '/^origins:/ {inside = 1} inside' "$work/base.yaml"
  } > "$work/new.yaml"
  mv "$work/new.yaml" "$profile"
done
git diff --stat -- scenarios/clusters 2> /dev/null || true
