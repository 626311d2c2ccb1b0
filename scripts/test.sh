#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds everything and runs all tests. Extra arguments go to CMake's configuration.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/dependencies.sh --test
# A new tree is compiled in batches of files (see cmake/layer.cmake); one that is there keeps its choice.
batches=()
[ -e build/release/CMakeCache.txt ] || batches=(-DCMAKE_UNITY_BUILD=ON)
cmake --preset release -DSHARDSIM_TESTS=ON "${batches[@]}" "$@"
cmake --build --preset release
ctest --preset release -j "$(nproc)"
