"""Byte sizes and rates: text to numbers and back. GB is 1e9, GiB is 2**30, and they are never mixed up."""

from __future__ import annotations

import math
import re
from decimal import Decimal

KiB, MiB, GiB, TiB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": KiB, "mib": MiB, "gib": GiB, "tib": TiB,
}  # fmt: skip
_SIZE = re.compile(r"\s*([+-]?[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*\Z")


def parse_number(value: object) -> float:
    """A finite, non-negative number from an int, a float or text such as `6_000` or `8e9`; ValueError says why not."""
    number, unit = _split(value)
    if unit:
        raise ValueError(f"{value!r} has a unit, a plain number is wanted")
    return float(number) if isinstance(number, Decimal) else number


def parse_bytes(value: object) -> int:
    """Bytes from `6GiB`, `6 GB`, `6_000`, `8e9` or a whole number; ValueError says what is wrong with it."""
    number, unit = _split(value)
    if unit.lower() not in _UNITS:
        raise ValueError(f"{value!r} has the unit {unit!r}: use B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (of 1024)")
    size = number * _UNITS[unit.lower()]
    if size != int(size):
        raise ValueError(f"{value!r} is {size} bytes, not a whole number of bytes")
    return int(size)


def parse_rate(value: object) -> float:
    """Bytes a second from `1.6GB/s`, `500 MiB/s` or a plain number of bytes a second."""
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and text.lower().endswith("/s"):
        text = text[:-2]
    number, unit = _split(text)
    if unit.lower() not in _UNITS:
        raise ValueError(f"{value!r} has the unit {unit!r}: use for example GB/s (1e9) or GiB/s (2**30)")
    return float(number * _UNITS[unit.lower()])


def gib(num_bytes: float) -> str:
    """`3.25 GiB`; small sizes in MiB or KiB or B so that they do not read as 0.00."""
    for unit, size in (("GiB", GiB), ("MiB", MiB), ("KiB", KiB)):
        if abs(num_bytes) >= size * (0.1 if unit == "GiB" else 1):
            return f"{num_bytes / size:,.2f} {unit}"
    return f"{int(num_bytes)} B"


def mib(num_bytes: float) -> str:
    """`1,500.0 MiB`, for shortfalls; below one in KiB or B, so that none reads as 0.0."""
    return f"{num_bytes / MiB:,.1f} MiB" if abs(num_bytes) >= MiB else gib(num_bytes)


def gb_per_s(rate: float) -> str:
    """`6.91 GB/s` (1e9 bytes a second)."""
    return f"{rate / 1e9:,.2f} GB/s"


def figure(value: float) -> str:
    """`1,748`, `87.1`, `0.0276`: three digits of a predicted or measured number, without exponents."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _split(value: object) -> tuple[int | float | Decimal, str]:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a number")
    if isinstance(value, str):
        match = _SIZE.match(value)
        if not match:
            hint = ": write 1.5 with a point, or 1_500 for thousands" if "," in value else ""
            raise ValueError(f"{value!r} is not a number{hint}")
        # int() keeps sizes over 2**53 exact, Decimal 1.07GB, which as a float is not a whole number of bytes
        digits = match[1].replace("_", "")
        number: int | float | Decimal = int(digits) if digits.lstrip("+-").isdigit() else Decimal(digits)
        unit = match[2]
    else:
        number, unit = value, ""
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not finite")
    if number < 0:
        raise ValueError(f"{value!r} is negative")
    return number, unit
