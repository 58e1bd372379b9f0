#!/bin/bash
# Runs the Windows Python of wine_python.sh: in_wine.sh FOLDER [python arguments]. Its exit code is Python's.
# All three streams are pipes: CPython 3.13 asks for the file id of an inherited stream, which Wine 8 refuses for files and /dev/null
# ("init_sys_streams: [WinError 6] Invalid handle", before the first line of Python).
set -uo pipefail
folder=$(realpath "${1:?usage: in_wine.sh FOLDER [python arguments]}")
shift
export WINEDEBUG=-all WINEPREFIX="$folder/prefix" WINEDLLOVERRIDES="mscoree,mshtml=" LC_ALL=C.UTF-8
: | wine "$folder/python/python.exe" "$@" 2>&1 | cat
exit "${PIPESTATUS[1]}"
