#!/bin/bash
# Everything that runs on Windows, for real, under Wine: run.sh [FOLDER for the Windows Python, made if it is not there].
# PYTHON names the Linux Python that has our packages (default python3). Takes about three minutes.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
folder=$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/strata-recipes-wine}")
export PYTHON=${PYTHON:-python3}
tests/windows/wine_python.sh "$folder"

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
work="$root/模型 données (1)"
mkdir "$work"

quietly() { "$@" >"$root/log" 2>&1 || { cat "$root/log" >&2; return 1; }; }
in_wine() { tests/windows/in_wine.sh "$folder" "$@"; }

echo "tests under Wine"
in_wine -m pytest -q -p no:cacheprovider tests/windows tests/schedule tests/simulate tests/plan/test_golden.py

echo "a plan made on Windows is the Linux plan, byte for byte"
plan=(mode=plan hardware=rtx5090_32gb_windows model=qwen38_flash_next_iq2_xs)
quietly "$PYTHON" run.py "${plan[@]}" "results.root='$work/linux'"
quietly in_wine run.py "${plan[@]}" "results.root='Z:$work/windows'"
cmp "$work"/linux/plan/*/plan.json "$work"/windows/plan/*/plan.json

echo "a pack made on Windows is the Linux pack, byte for byte"
quietly "$PYTHON" run.py mode=pack model=demo "model.pack='$work/pack_linux'" "results.root='$work/linux'"
quietly in_wine run.py mode=pack model=demo "model.pack='Z:$work/pack_windows'" "results.root='Z:$work/windows'"
diff -r "$work/pack_linux" "$work/pack_windows"
test -s "$work/pack_windows/experts.bin"

echo "a refusal on Windows has its exit code"
code=0
in_wine run.py mode=plan hardware=no_such_pc >"$root/log" 2>&1 || code=$?
[ "$code" = 2 ] || { cat "$root/log" >&2; echo "exit code $code, wanted 2" >&2; exit 1; }
