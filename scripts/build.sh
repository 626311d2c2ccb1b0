#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, configures and builds the release preset. The executable is build/release/shardsim.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/dependencies.sh
cmake --preset release -DSHARDSIM_TESTS=OFF
cmake --build --preset release
