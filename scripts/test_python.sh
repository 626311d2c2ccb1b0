#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Python package into a virtual environment of its own (build/venv) and runs its tests: what `pip install .` gives a user.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x build/venv/bin/python ] || python3 -m venv build/venv
build/venv/bin/pip install --quiet --disable-pip-version-check . pytest pandas
cd tests/python  # not the source tree: the installed package is tested
SHARDSIM_EXECUTABLE=${SHARDSIM_EXECUTABLE:-../../build/release/shardsim} ../../build/venv/bin/python -m pytest -q -p no:cacheprovider .
