"""Every format to every output type, against the numpy truth, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_numba import reference, reference_ops
from kernels_numba.device import SIMULATED, DeviceMismatch, to_device, to_host
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.dequantize import dequantize
from kernels_numba.gpu.selftest import self_test
from kernels_numba.repack import repack
from tests.gpu.weights import BOTH
from tests.kernels.blocks import random_blocks

COUNTS = [1, 9] if SIMULATED else [1, 9, 1000, 70_001]


@pytest.mark.parametrize("output", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("planar", BOTH)
@pytest.mark.parametrize("name", list(FORMATS))
def test_equals_the_reference_bit_by_bit(name: str, planar: bool, output: str) -> None:
    for count in COUNTS:
        data = random_blocks(name, count, seed=count)
        expected = reference.dequantize(data, name)
        out = run(repack(data, name) if planar else data, name, output, planar)
        if output == "f32":
            assert (out.view(np.uint32) == expected.view(np.uint32)).all(), count
        else:
            assert (out == reference_ops.to_bits(expected, output)).all(), count


@pytest.mark.parametrize("name", list(FORMATS))
def test_starts_at_any_even_byte(name: str) -> None:
    data = random_blocks(name, 5, seed=3)
    moved = to_device(np.concatenate([np.zeros(6, np.uint8), data]))[6:]
    if name == "F32":
        moved = to_device(np.concatenate([np.zeros(4, np.uint8), data]))[4:]
    out = to_device(np.full(5 * FORMATS[name].block_values, np.nan, np.float32))
    dequantize(moved, name, out)
    assert (to_host(out).view(np.uint32) == reference.dequantize(data, name).view(np.uint32)).all()


@pytest.mark.parametrize("output", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_every_16_bit_value(name: str, output: str) -> None:
    count = 2**16 if not SIMULATED else 2**9
    data = np.arange(0, 2**16, 2**16 // count, dtype=np.uint32).astype(np.uint16).view(np.uint8)
    expected = reference.dequantize(data, name)
    got = run(data, name, output, False)
    bits = expected.view(np.uint32) if output == "f32" else reference_ops.to_bits(expected, output)
    nan = np.isnan(expected)
    assert (got.view(bits.dtype)[~nan] == bits[~nan]).all()
    assert np.isnan(got if output == "f32" else reference_ops.from_bits(got, output))[nan].all()


def test_no_blocks_is_no_launch() -> None:
    dequantize(to_device(np.empty(0, np.uint8)), "Q2_0", to_device(np.empty(0, np.float32)))


def test_wrong_arguments_are_refused() -> None:
    data, out = to_device(np.zeros(36, np.uint8)), to_device(np.zeros(128, np.float32))
    with pytest.raises(ValueError, match="not whole Q2_0 blocks of 18"):
        dequantize(data[:17], "Q2_0", out)
    with pytest.raises(ValueError, match=r"out is float32 of shape \(128,\), wanted float32 of shape \(64,\)"):
        dequantize(data[:18], "Q2_0", out)
    with pytest.raises(ValueError, match=r"out is float32 .* wanted bits16"):
        dequantize(data, "Q2_0", out, "bf16")
    with pytest.raises(ValueError, match="data is not contiguous"):
        dequantize(to_device(np.zeros(72, np.uint8))[::2], "Q2_0", out)
    with pytest.raises(ValueError, match="results at a multiple of 16"):
        dequantize(data[:18], "Q2_0", to_device(np.zeros(65, np.float32))[1:])
    with pytest.raises(ValueError, match="list is not a device array"):
        dequantize([1, 2], "Q2_0", out)


def test_the_self_test_passes() -> None:
    self_test(FORMATS)


def test_the_self_test_names_the_format_that_decodes_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = reference.dequantize
    monkeypatch.setattr(reference, "dequantize", lambda data, name: truth(data, name) + (1 if name == "Q4_0" else np.float32(-0.0)))
    with pytest.raises(DeviceMismatch, match="256 of 256 Q4_0 values decode wrongly on "):
        self_test(["Q4_0", "Q2_0"])


def run(data: np.ndarray, name: str, output: str, planar: bool) -> np.ndarray:
    values = data.size // FORMATS[name].block_bytes * FORMATS[name].block_values
    out = to_device(np.full(values, np.nan, np.float32) if output == "f32" else np.full(values, 0xFFFF, np.uint16))
    dequantize(to_device(data), name, out, output, planar)
    return to_host(out)
