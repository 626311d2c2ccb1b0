#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy with the checks of .clang-tidy over the simulator, or over the files given. Needs a configured tree (build/release).
set -euo pipefail
cd "$(dirname "$0")/.."
files=("$@")
[ ${#files[@]} -gt 0 ] || mapfile -t files < <(git ls-files 'sim/*.cpp')
# In a tree compiled in batches the database names the batches: a database of its own, without precompiled headers that g++ made.
cmake -G Ninja -S . -B build/tidy -DCMAKE_BUILD_TYPE=Release -DSHARDSIM_TESTS=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
printf '%s\0' "${files[@]}" | xargs -0 -n 4 -P "$(nproc)" clang-tidy --quiet -p build/tidy
