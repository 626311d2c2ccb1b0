#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a machine with NVIDIA GPUs can tell, in under ten minutes after the build: measures the GPUs and their collectives, then runs the schedule
# of every strategy on 2 and 4 ranks and compares NCCL's bytes and the pools' high-water marks with the prediction.
#
#   scripts/gpu.sh [BASE_PROFILE] [FOLDER]
#
# BASE_PROFILE: where peaks and prices come from (default clusters/h100-sxm.yaml). FOLDER (default gpu-run) is left with profile.yaml,
# execute-RANKS-SEMANTICS.json and gpu.log. SHARDSIM=PATH runs that program in place of building one.
# Exit code: 0 all agree, 1 something differs from its prediction, 3 there is no GPU (or none for this build).
set -euo pipefail

base=${1:-clusters/h100-sxm.yaml}
folder=${2:-gpu-run}
source_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export SHARDSIM_DATA=${SHARDSIM_DATA:-$source_folder/scenarios}
mkdir -p "$folder"

build() {
  (cd "$source_folder" && cmake --preset cuda && cmake --build --preset cuda --target shardsim)
}

# Runs a command; a first failure is the script's, but what comes after it is still tried.
worst=0
try() {
  local code=0
  echo "== $*"
  "$@" || code=$?
  [ "$code" -eq 0 ] && return
  echo "== exit code $code"
  [ "$worst" -ne 0 ] || worst=$code
}

groups_of() {  # 2,4,8 ... up to the number of GPUs, and that number
  local gpus=$1 list=2 size=4
  while [ "$size" -le "$gpus" ]; do list=$list,$size; size=$((2 * size)); done
  echo "$list,$gpus"
}

main() {
  local shardsim=${SHARDSIM:-} gpus=0
  if [ -z "$shardsim" ]; then
    build
    shardsim=$source_folder/build/cuda/shardsim
  fi
  if command -v nvidia-smi > /dev/null; then
    nvidia-smi
    nvidia-smi topo -m || true
    gpus=$(nvidia-smi -L | grep -c '^GPU') || gpus=0
  fi
  SECONDS=0
  try "$shardsim" calibrate cuda --base "$base" -o "$folder/profile.yaml"
  [ "$worst" -ne 3 ] || return 3
  if [ "$gpus" -gt 1 ]; then
    try "$shardsim" calibrate nccl --base "$folder/profile.yaml" -o "$folder/profile.yaml" --groups "$(groups_of "$gpus")"
  fi
  try "$shardsim" calibrate show "$folder/profile.yaml"
  local job=("$shardsim" execute "$source_folder/scenarios/execute/tiny.yaml" --backend cuda)
  for ranks in 2 4; do
    for semantics in framework textbook; do
      try "${job[@]}" --ranks "$ranks" --strategies all --set strategy.semantics=$semantics --report "$folder/execute-$ranks-$semantics.json"
    done
  done
  try "${job[@]}" --ranks 4 --set strategy.name=fsdp2 --set strategy.replicate=2 --report "$folder/execute-4-replicas.json"
  echo "== took $SECONDS s"
  return "$worst"
}

main 2>&1 | tee "$folder/gpu.log"
exit "${PIPESTATUS[0]}"
