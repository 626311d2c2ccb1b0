#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the build, then compiles docs/examples/embed.cpp against it as a stranger would: by pkg-config and by find_package.
#   package_test.sh SOURCE_FOLDER BUILD_FOLDER pkg-config|cmake
set -euo pipefail
source_folder=$1 build_folder=$2 way=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DESTDIR='' cmake --install "$build_folder" --prefix "$work/prefix" >/dev/null
export SHARDSIM_DATA=$source_folder/scenarios
example=$source_folder/docs/examples/embed.cpp

if [ "$way" = pkg-config ]; then
  PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name shardsim.pc)")
  export PKG_CONFIG_PATH
  read -ra flags <<<"$(pkg-config --cflags --libs shardsim)"
  "${CXX:-c++}" -std=c++20 "$example" "${flags[@]}" -o "$work/embed"
else
  cat >"$work/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.20)
project(embed LANGUAGES CXX)
find_package(shardsim REQUIRED)
add_executable(embed $example)
target_link_libraries(embed PRIVATE shardsim::shardsim)
CMAKE
  cmake -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
  cmake --build "$work/build" >/dev/null
  cp "$work/build/embed" "$work/embed"
fi

output=$("$work/embed" "$source_folder/scenarios/llama3-8b-fsdp2-64xh100.yaml" cluster.nodes=4)
echo "$output"
grep -q '^fsdp2 on 32 GPUs: .* fits$' <<<"$output"
! "$work/embed" "$source_folder/scenarios/llama3-8b-fsdp2-64xh100.yaml" cluster.nodse=4 2>"$work/error"
grep -q 'nodse' "$work/error"
