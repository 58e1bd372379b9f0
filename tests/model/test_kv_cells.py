"""Cells on the CPU: the numpy truth to the bit, and the same bytes whatever is written together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels_numba import reference_kv
from kernels_numba.kv_formats import KV_FORMATS
from strata_recipes.model.kv_cells import HostPart, Places, decode, empty_cells, encode, rotate
from tests.kernels.rows import kv_rows

DIMS = [1, 24, 32, 33, 64, 72, 96, 128, 256, 768]


@pytest.mark.parametrize("name", list(KV_FORMATS))
@pytest.mark.parametrize("dim", DIMS)
def test_equals_the_truth(name: str, dim: int) -> None:
    rows = kv_rows(200, dim)
    rows[0], rows[1, 0], rows[2, -1], rows[3, 0], rows[4] = 0, np.inf, -np.inf, 1e9, 1e-9
    check(rows.reshape(2, 100, dim), name)


@pytest.mark.parametrize("name", ["int8", "q4_0"])
def test_many_magnitudes(name: str) -> None:
    """Scales from below float16's smallest to above its largest."""
    rng = np.random.default_rng(1)
    check((rng.standard_normal((3000, 64)) * 10.0 ** rng.uniform(-10, 8, (3000, 1))).astype(np.float32), name)


def test_halves_of_a_step_go_to_even() -> None:
    """Values halfway between two codes, of every scale whose halves are exact."""
    whole = np.arange(-127, 127, dtype=np.float32)[:64] + np.float32(0.5)
    rows = np.stack([np.concatenate([[127.0], whole[1:]]), np.concatenate([[-127.0], -whole[1:]])]).astype(np.float32)
    check(np.concatenate([rows * np.float32(2.0**power) for power in range(-14, 9)]), "int8")


def check(rows: np.ndarray, name: str) -> None:
    form, tensor = KV_FORMATS[name], torch.from_numpy(rows)
    assert np.array_equal(rotate(tensor, form).numpy(), reference_kv.rotate(rows, name), equal_nan=True)
    want, got = reference_kv.encode(rows, name), encode(tensor, form)
    values = reference_kv.decode(want, rows.shape[-1], name)
    assert np.array_equal(decode(got, rows.shape[-1], form).numpy(), values, equal_nan=True)
    sound = np.isfinite(values).all(-1)  # a NaN's bits are nobody's business
    assert (got.contiguous().numpy().view(np.uint8)[sound] == want[sound]).all() and sound.mean() > 0.5


@pytest.mark.parametrize("name", list(KV_FORMATS))
def test_a_tokens_cells_do_not_depend_on_what_is_written_with_them(name: str) -> None:
    rows = torch.from_numpy(kv_rows(3 * 50, 96)).view(50, 3, 96)
    whole, parts = (empty_cells(KV_FORMATS[name], 3, 60, 96, Places()) for _ in range(2))
    whole.write(4, rows)
    for at, to in ((0, 1), (1, 30), (30, 50)):
        parts.write(4 + at, rows[at:to])
    assert torch.equal(whole.near[:, 4:54], parts.near[:, 4:54])
    tokens = torch.tensor([53, 4, 9, 9, 30])
    assert torch.equal(whole.gather(tokens), whole.first(54)[:, tokens])
    wanted = reference_kv.decode(reference_kv.encode(rows.numpy(), name), 96, name)
    assert np.array_equal(whole.first(54)[:, 4:].numpy(), wanted.transpose(1, 0, 2))


def test_cells_know_where_a_card_finds_those_in_ram() -> None:
    """Each array from its own part of the RAM."""
    parts = [HostPart(torch.empty(3 * 50 * 40 * 4, dtype=torch.uint8), address) for address in (1 << 40, None)]
    given = iter(parts)
    found = [empty_cells(KV_FORMATS["fp32"], 3, 60, 40, Places(resident=10, host=lambda num_bytes: next(given))) for _ in range(2)]
    assert [cells.far_address for cells in found] == [1 << 40, None]
    assert [cells.far.data_ptr() for cells in found if cells.far is not None] == [part.bytes.data_ptr() for part in parts]
    assert empty_cells(KV_FORMATS["fp32"], 3, 60, 40, Places()).far_address is None


@pytest.mark.parametrize("resident", [1, 3, 31, 32, 33, 59])
@pytest.mark.parametrize("name", list(KV_FORMATS))
def test_where_cells_lie_changes_no_value(name: str, resident: int) -> None:
    rows = torch.from_numpy(kv_rows(3 * 60, 40)).view(60, 3, 40)
    whole, split = (empty_cells(KV_FORMATS[name], 3, 60, 40, Places(resident=where)) for where in (None, resident))
    assert split.far is not None and split.near.shape[1] == resident and split.num_bytes == whole.num_bytes
    for at, to in ((0, 2), (2, 31), (31, 34), (34, 60)):
        whole.write(at, rows[at:to])
        split.write(at, rows[at:to])
    for count in (1, 31, 60):
        assert torch.equal(split.first(count), whole.first(count))
    tokens = torch.tensor([59, 0, 31, 32, 2, 2, 30, 58])
    assert torch.equal(split.gather(tokens), whole.gather(tokens))
