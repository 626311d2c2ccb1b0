#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs from Debian's packages what is missing to build (and, with --test or --ci, to test) shardsim. Does nothing when all is there.
set -euo pipefail

packages=(g++ cmake pkg-config ninja-build libyaml-cpp-dev libfmt-dev nlohmann-json3-dev libboost-graph-dev libeigen3-dev libcli11-dev libspdlog-dev
          libexpected-dev libtomlplusplus-dev libjs-chart.js zlib1g-dev libopenmpi-dev openmpi-bin libgtest-dev libgmock-dev librapidcheck-dev)
for argument in "$@"; do
  case "$argument" in
    --test) packages+=(libxml2-utils python3-jsonschema) ;;
    --ci) packages+=(clang clang-format clang-tidy libclang-rt-14-dev libxml2-utils python3-jsonschema python3-venv chromium iproute2 libsimgrid-dev) ;;
    *) echo "usage: $0 [--test] [--ci]" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "installing: ${missing[*]}" >&2
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "these packages are missing and there is no sudo: ${missing[*]}" >&2; exit 3; }
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
