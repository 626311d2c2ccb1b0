#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds everything and runs all tests. Extra arguments go to CMake's configuration.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/dependencies.sh --test
cmake --preset release -DSHARDSIM_TESTS=ON "$@"
cmake --build --preset release
ctest --preset release -j "$(nproc)"
