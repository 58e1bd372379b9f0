"""A GGUF's key-value pairs, read by a reader that shares no code with the pack's."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def gguf_metadata(path: Path) -> dict[str, Any]:
    data, at = path.read_bytes(), 24

    def number(code: str) -> Any:
        nonlocal at
        value = struct.unpack_from(f"<{code}", data, at)[0]
        at += struct.calcsize(f"<{code}")
        return value

    def value(kind: int) -> Any:
        nonlocal at
        if kind == 8:
            size = number("Q")
            at += size
            return data[at - size : at].decode()
        if kind == 9:
            item, count = number("I"), number("Q")
            return [value(item) for _ in range(count)]
        return number(_SCALARS[kind])

    return {value(8): value(number("I")) for _ in range(struct.unpack_from("<Q", data, 16)[0])}
