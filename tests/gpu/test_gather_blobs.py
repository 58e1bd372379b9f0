"""Blobs gathered on the card: every byte asked for, none beside, and those that are there already left where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels_numba import reference_decode
from kernels_numba.device import SIMULATED, address, to_device, to_host
from kernels_numba.gpu.gather_blobs import gather_blobs

UNTOUCHED = 0xA5
SIZES = [(0, 2), (0, 46), (32, 4098)] if SIMULATED else [(0, 2), (0, 46), (32, 16384), (16, 16386), (48, 70_000), (0, 65_536), (16, 0)]


@pytest.mark.parametrize(("first", "num_bytes"), SIZES)
def test_equals_the_truth(first: int, num_bytes: int) -> None:
    stride = -(-(first + num_bytes) // 16) * 16 + 16
    blobs = np.random.default_rng(num_bytes).integers(0, 256, (5, stride), dtype=np.uint8)
    chosen, near = np.array([3, 0, 2, 1], np.int32), np.array([0, 1, 0, 0, 1], np.uint8)
    held, places = locked(blobs)
    for one in (None, near):
        into, found = to_device(np.full((4, stride), UNTOUCHED, np.uint8)), to_device(np.zeros(4, np.int64))
        asked = places[chosen]
        asked[1] = 0
        known = (None, None) if one is None else (to_device(chosen), to_device(one))
        gather_blobs(to_device(asked), *known, into, found, first, num_bytes)
        truth, there = np.full((4, stride), UNTOUCHED, np.uint8), np.zeros(4, np.int64)
        host = np.array([blobs[expert].ctypes.data for expert in chosen])
        host[1] = 0
        reference_decode.gather_blobs(host, chosen, one, truth, there, first, num_bytes)
        assert (to_host(into) == truth).all()
        got, start = to_host(found), address("into", into, "uint8", (4, stride))
        near_ones = there == host
        assert (got[near_ones] == asked[near_ones]).all()
        assert (got[~near_ones] == start + stride * np.flatnonzero(~near_ones)).all()
        assert near_ones.sum() == (1 if one is None else 2)
    assert held is not None


def test_wrong_arguments_are_refused() -> None:
    into, places = to_device(np.zeros((1, 64), np.uint8)), to_device(np.zeros(1, np.int64))
    for first, num_bytes in ((8, 2), (0, 3), (16, 50), (-16, 2)):
        with pytest.raises(ValueError, match=f"bytes {first} to {first + num_bytes} of blobs in 64 bytes: wanted"):
            gather_blobs(places, None, None, into, to_device(np.zeros(1, np.int64)), first, num_bytes)


def test_no_blobs_launch_nothing() -> None:
    empty = np.zeros(0, np.int64)
    gather_blobs(to_device(empty), None, None, to_device(np.zeros((0, 16), np.uint8)), to_device(empty), 0, 16)


def locked(blobs: np.ndarray) -> tuple[Any, np.ndarray]:
    """Page-locked copies, kept by the first, and their addresses."""
    if SIMULATED:
        return blobs, np.array([blob.ctypes.data for blob in blobs])
    import torch

    host = torch.from_numpy(blobs).pin_memory()
    return host, np.array([blob.data_ptr() for blob in host])
