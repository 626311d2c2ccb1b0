#!/bin/bash
# Makes the golden recordings of tests/recordings anew with the newest releases of the real libraries, in a virtual environment, and shows
# what changed: how the project follows its libraries. Exit code 1 if a recording came out differently.
#
#   scripts/record.sh [--every N] [--write] [--with PACKAGE==VERSION]... [PATTERN]...
#
# PATTERN: recordings whose path contains it (fsdp2/, lora); default: all of each library's newest version. --every N: each N-th of them.
# --with: another release than the newest (--with torch==2.13.0). --write: put what came out into the folder of the version that made it;
# without it tests/recordings is left as it is. The environment lies in $SHARDSIM_RECORD_VENV (default: a folder of the user's cache).
set -euo pipefail
cd "$(dirname "$0")/.."
stored=tests/recordings
venv=${SHARDSIM_RECORD_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/shardsim/record-venv}
every=1 write=false packages=() patterns=()
while [ $# -gt 0 ]; do
  case $1 in
    --every) every=$2; shift 2 ;;
    --write) write=true; shift ;;
    --with) packages+=("$2"); shift 2 ;;
    --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "record.sh: unknown option $1" >&2; exit 2 ;;
    *) patterns+=("$1"); shift ;;
  esac
done

newest_folders() {  # of each library: torch-2.15.0, deepspeed-0.19.6
  local library
  for library in $(find "$stored" -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | sed 's/-[0-9].*//' | sort -u); do
    find "$stored" -mindepth 1 -maxdepth 1 -type d -name "$library-[0-9]*" | sort -V | tail -n 1
  done
}

selected() {
  if [ ${#patterns[@]} -eq 0 ]; then
    newest_folders | xargs -r -I{} find {} -name '*.txt' | sort
  else
    find "$stored" -name '*.txt' | sort | grep -F "$(printf '%s\n' "${patterns[@]}")"
  fi | awk -v every="$every" 'NR % every == 0'
}

mapfile -t files < <(selected)
if [ ${#files[@]} -eq 0 ]; then echo "record.sh: no recording is called that" >&2; exit 2; fi

needs() { printf '%s\n' "${files[@]}" | grep -q "$1"; }
packages+=(torch transformers)
needs lora && packages+=(peft)
needs /deepspeed- && packages+=(deepspeed)
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --upgrade "${packages[@]}"

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
for file in "${files[@]}"; do
  mkdir -p "$fresh/$(dirname "${file#"$stored"/}")"
  cp "$file" "$fresh/${file#"$stored"/}"
done
failed=0
(cd "$fresh" && find . -name '*.txt' | sort | PYTHONPATH="$OLDPWD/python" xargs nice "$venv/bin/python" -m shardsim.record --update) || failed=1

changed=0
for file in "${files[@]}"; do
  diff -u -I '^library: ' --label "$file" --label "with $("$venv/bin/pip" list 2>/dev/null | awk '$1 == "torch" || $1 == "deepspeed" {printf "%s %s ", $1, $2}')" \
    "$file" "$fresh/${file#"$stored"/}" || changed=$((changed + 1))
done
echo "record.sh: ${#files[@]} recordings made anew, $changed changed"

if $write; then
  for file in "${files[@]}"; do
    made=$fresh/${file#"$stored"/}
    version=$(sed -n 's/^library: \([a-z]*\) \([0-9.]*[0-9]\).*/\1-\2/p' "$made")
    target=$stored/$version/$(cut -d/ -f4- <<< "$file")
    mkdir -p "$(dirname "$target")"
    cp "$made" "$target"
  done
fi
exit $((failed || changed > 0 ? 1 : 0))
