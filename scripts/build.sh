#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, configures and builds the release preset. The executable is build/release/shardsim.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/dependencies.sh
# A new tree is compiled in batches of files (see cmake/layer.cmake); one that is there keeps its choice.
batches=()
[ -e build/release/CMakeCache.txt ] || batches=(-DCMAKE_UNITY_BUILD=ON)
cmake --preset release -DSHARDSIM_TESTS=OFF "${batches[@]}"
cmake --build --preset release
