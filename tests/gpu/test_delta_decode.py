"""A gated delta net's decode ops against the numpy truth; a row's bits depend on it and the rows before it alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kernels_numba import reference_decode_mixers as truth
from kernels_numba.device import SIMULATED, to_device, to_host
from kernels_numba.gpu import delta_decode as kernels
from tests.kernels.delta_rows import Floats, Net, Rows, draw

# float32 sums of at most 256 values, each a few times its own size: relative L2 of a head stays near 1e-6
RELATIVE = 1e-5
EPS = 1e-6
SMALL = [(Net(1, 2, 32), 2), (Net(1, 1, 36, 3), 1)]
CASES = [
    (Net(16, 48, 128), 1),
    (Net(16, 48, 128), 8),
    (Net(4, 12, 32), 3),
    (Net(4, 8, 64), 8),
    (Net(2, 6, 96, 3), 5),
    (Net(1, 1, 4, 2), 2),
    (Net(3, 3, 100), 4),
    (Net(2, 4, 256, 8), 8),
]
each_net = pytest.mark.parametrize(("net", "rows"), SMALL if SIMULATED else CASES, ids=str)


@dataclasses.dataclass(frozen=True)
class Made:
    """What the three ops make in turn, and the states after them."""

    qkv: Floats
    read: Floats
    out: Floats
    conv: Floats
    state: Floats


@each_net
def test_equals_the_reference(net: Net, rows: int) -> None:
    """Each op on the kernels' own operands, so that errors do not add up."""
    drawn = draw(net, rows)
    got = run(drawn)
    want = expected(drawn, got.qkv, got.read)
    for name in ("qkv", "read", "out", "state"):
        assert distance(getattr(got, name), getattr(want, name), net.dim) <= RELATIVE, name
    assert (got.conv == want.conv).all()


@pytest.mark.parametrize("gate", kernels.GATES)
@pytest.mark.parametrize("dim", [32, 40])
def test_both_gates_and_in_place(gate: str, dim: int) -> None:
    rng = np.random.default_rng(dim)
    read, mixed, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3 * dim), (2, 3 * dim + 7), (dim,)))
    want, both = np.empty_like(read), to_device(read)
    truth.delta_norm(read, mixed, 5, weight, EPS, gate, want)
    kernels.delta_norm(both, to_device(mixed), 5, to_device(weight), EPS, gate, both)
    assert distance(to_host(both), want, dim) <= RELATIVE


@pytest.mark.gpu
@pytest.mark.parametrize(("net", "rows"), [case for case in CASES if case[1] > 1], ids=str)
def test_rows_at_once_have_the_bits_of_rows_in_turn(net: Net, rows: int) -> None:
    drawn = draw(net, rows)
    whole, one, parts = run(drawn), drawn, []
    for at in range(rows):
        parts.append(run(dataclasses.replace(drawn.part(at, at + 1), conv=one.conv, state=one.state)))
        one = dataclasses.replace(one, conv=parts[-1].conv, state=parts[-1].state)
    for name in ("qkv", "read", "out"):
        assert (np.concatenate([getattr(part, name) for part in parts]).view(np.uint32) == getattr(whole, name).view(np.uint32)).all(), name
    assert (whole.state.view(np.uint32) == one.state.view(np.uint32)).all() and (whole.conv == one.conv).all()


@pytest.mark.gpu
def test_a_state_is_forgotten_and_rates_may_be_huge() -> None:
    drawn = draw(Net(16, 48, 128), 3)
    drawn.rates[0, :48], drawn.rates[1, 48:], drawn.rates[2, 48:] = 500, 90, -90
    drawn.state[:] *= 1e10
    got = run(drawn)
    assert np.isfinite(got.state).all() and np.isfinite(got.out).all()
    assert distance(got.read, expected(drawn, got.qkv, got.read).read, 128) <= RELATIVE


@pytest.mark.gpu
def test_a_nan_stays_in_its_head() -> None:
    drawn = draw(Net(4, 12, 32), 2)
    drawn.rates[1, 5] = np.nan
    read = run(drawn).read.reshape(2, 12, 32)
    assert np.isnan(read[1, 5]).all() and np.isfinite(np.delete(read[1], 5, axis=0)).all() and np.isfinite(read[0]).all()


def test_no_rows_change_nothing() -> None:
    drawn = draw(Net(1, 2, 32), 2).part(0, 0)
    got = run(drawn)
    assert got.out.shape == (0, 64) and (got.state == drawn.state).all() and (got.conv == drawn.conv).all()


def test_wrong_arguments_are_refused() -> None:
    drawn = draw(Net(1, 2, 32), 2)
    with pytest.raises(ValueError, match="4 taps over 128 of 198 channels in heads of 48"):
        kernels.delta_conv(drawn.mixed, drawn.conv, drawn.weight, 1, 48, drawn.mixed)
    with pytest.raises(ValueError, match="2 value heads and 3 key heads of 32 values"):
        kernels.delta_step(drawn.mixed, drawn.mixed, drawn.rates_at, drawn.decay, drawn.bias, drawn.state, 3, drawn.mixed)
    with pytest.raises(ValueError, match="rates of 2 heads from column 195 of 198 on: wanted 4 columns"):
        kernels.delta_step(drawn.mixed, drawn.mixed, 195, drawn.decay, drawn.bias, drawn.state, 1, drawn.mixed)
    with pytest.raises(ValueError, match=r"gated by tanh of columns 129 .* wanted silu or sigmoid"):
        kernels.delta_norm(drawn.state[0, :2], drawn.mixed, 129, drawn.norm, EPS, "tanh", drawn.state[0, :2])


def run(drawn: Rows, gate: str = "silu") -> Made:
    net, rows = drawn.net, len(drawn.mixed)
    parts = drawn.mixed, drawn.conv, drawn.state, drawn.weight, drawn.decay, drawn.bias, drawn.norm
    mixed, conv, state, weight, decay, bias, norm = (to_device(part) for part in parts)
    qkv, read, out = (to_device(np.full((rows, width), np.nan, np.float32)) for width in (net.channels, net.width, net.width))
    kernels.delta_conv(mixed, conv, weight, net.key_heads, net.dim, qkv)
    kernels.delta_step(qkv, mixed, drawn.rates_at, decay, bias, state, net.key_heads, read)
    kernels.delta_norm(read, mixed, net.channels + 1, norm, EPS, gate, out)
    return Made(*(to_host(part) for part in (qkv, read, out, conv, state)))


def expected(drawn: Rows, qkv: Floats, read: Floats, gate: str = "silu") -> Made:
    """The truth of each op, on given operands of the second and the third."""
    net, conv, state = drawn.net, drawn.conv.copy(), drawn.state.copy()
    made, seen, out = np.empty_like(qkv), np.empty_like(read), np.empty_like(read)
    truth.delta_conv(drawn.mixed, conv, drawn.weight, net.key_heads, net.dim, made)
    truth.delta_step(qkv, drawn.mixed, drawn.rates_at, drawn.decay, drawn.bias, state, net.key_heads, seen)
    truth.delta_norm(read, drawn.mixed, net.channels + 1, drawn.norm, EPS, gate, out)
    return Made(made, seen, out, conv, state)


def distance(got: np.ndarray, want: np.ndarray, dim: int) -> float:
    """The largest relative L2 of `dim` values."""
    got, want = got.reshape(-1, dim), want.reshape(-1, dim)
    return float((np.linalg.norm(got - want, axis=-1) / np.linalg.norm(want, axis=-1)).max())
