#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures the GPUs of this machine in under ten minutes. Leaves gpu-profile.yaml and calibrate-gpu.log in the current folder.
# Usage: scripts/calibrate_gpu.sh BASE_PROFILE     (peaks and prices come from it: scenarios/clusters/h100-sxm.yaml, say)
set -eu
base=${1:?usage: calibrate_gpu.sh BASE_PROFILE}
source_folder=$(cd "$(dirname "$0")/.." && pwd)
log=calibrate-gpu.log
{
  nvidia-smi
  nvidia-smi topo -m || true
  cmake -S "$source_folder" -B build-gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DSHARDSIM_GPU=ON -DSHARDSIM_TESTS=OFF
  cmake --build build-gpu --target shardsim
  build-gpu/shardsim calibrate cuda --base "$base" -o gpu-profile.yaml
  if [ "$(nvidia-smi -L | wc -l)" -gt 1 ]; then
    build-gpu/shardsim calibrate nccl --base gpu-profile.yaml -o gpu-profile.yaml
  fi
  build-gpu/shardsim calibrate show gpu-profile.yaml
} 2>&1 | tee "$log"
