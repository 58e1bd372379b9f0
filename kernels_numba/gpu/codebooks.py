"""The codebooks of the IQ formats in device memory, copied once a process. Knows no block layout."""

from __future__ import annotations

import functools

from kernels_numba.device import address, to_device
from kernels_numba.gpu.decode_iq import CODEBOOKS, codebook


@functools.cache
def codebook_address(format_name: str) -> int:
    """Address of the format's codebook; 0 for a format without one."""
    if format_name not in CODEBOOKS:
        return 0
    return address("codebook", _table(format_name), "uint8", (-1, -1))


@functools.cache
def codebook_words(format_name: str) -> int:
    """Its size in words; 0 for a format without one."""
    return codebook(format_name).size // 4 if format_name in CODEBOOKS else 0


@functools.cache
def _table(format_name: str):  # type: ignore[no-untyped-def]
    return to_device(codebook(format_name))
