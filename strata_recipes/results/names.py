"""Folder names that every system takes. Knows no run."""

from __future__ import annotations

import re

_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
_MAX_CHARS = 40  # ASCII, so bytes too


def safe_name(text: str) -> str:
    """ASCII letters, digits, `-`, `_` and inner `.`; at most 40 bytes; never empty and never a device of Windows."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:_MAX_CHARS].strip("._ ")
    if not name:
        return "run"
    return f"_{name}" if name.split(".")[0].lower() in _DEVICES else name
