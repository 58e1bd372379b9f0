"""Takes this machine's own places out of a text, so that a results folder can be published. Keeps what the user wrote."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

# An absolute path of either system with at least two parts, up to white space, a quote or closing punctuation; JSON doubles `\\`.
_PART = r"[^\s\\/'\"<>|:;,()\[\]]"
_PATH_RE = re.compile(rf"(?<![\w./\\~>-])(?:[A-Za-z]:[\\/]+|\\\\+|/)(?:{_PART}+[\\/]+)+{_PART}*")


def without_places(text: str, stated: str = "") -> str:
    """The text with working, home and temporary folders as `.`, `~` and `<tmp>`, other absolute paths as their last part.

    A path that stands in `stated` (the config's text) is left as it is.
    """
    kept = {found for found in _PATH_RE.findall(text) if found in stated}
    for place, short in _places():
        if place not in stated:
            text = re.sub(rf"(?<![\w.\\/-]){re.escape(place)}(?![\w-])", short, text)
    return _PATH_RE.sub(lambda match: match[0] if match[0] in kept else f"<path>/{_last(match[0])}", text)


def _places() -> list[tuple[str, str]]:
    found = [(str(Path.cwd()), "."), (str(Path.home()), "~"), (tempfile.gettempdir(), "<tmp>")]
    return sorted((place for place in found if len(place[0]) > 3), key=lambda place: -len(place[0]))


def _last(path: str) -> str:
    return re.split(r"[\\/]", path.rstrip("\\/"))[-1]
