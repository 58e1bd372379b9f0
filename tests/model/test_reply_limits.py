"""What a card's kernels for replies refuse is what the plan refuses: each limit against the kernel that has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

from kernels_numba.endings import Mixed
from kernels_numba.gpu import token_ops as ops
from strata_recipes.plan.reply_rows import MOST_CHOSEN, MOST_DIM, MOST_HEADS, MOST_STREAMS, MOST_TAPS, reply_faults
from tests.plan.cases import small_geometry

POSITION = torch.zeros(1, dtype=torch.int64)


def route(chosen: int) -> None:
    empty = torch.zeros(1, chosen)
    ops.route_decode(torch.zeros(1, 64), torch.zeros(64), empty, empty, empty, torch.zeros(1))


def attention(heads: int, dim: int) -> None:
    cells, heads_of = torch.zeros(1, 4, dim), torch.zeros(1, heads, dim)
    ops.attention_decode(heads_of, cells, cells, torch.zeros(1, 1), torch.zeros(1), 4, POSITION, torch.zeros(1), torch.zeros(1))


def index(heads: int, dim: int) -> None:
    ops.index_scores_at(torch.zeros(1, heads, dim), torch.zeros(4, dim), 4, 1, POSITION, torch.zeros(1, 4))


def delta_conv(taps: int) -> None:
    ops.delta_conv(torch.zeros(1, 48), torch.zeros(taps - 1, 48), torch.zeros(48, taps), 1, 16, torch.zeros(1, 48))


def delta_step(dim: int) -> None:
    state = torch.zeros(1, dim, dim)
    ops.delta_step(torch.zeros(1, 3 * dim), torch.zeros(1, 2), 0, torch.zeros(1), torch.zeros(1), state, 1, torch.zeros(1, dim))


def streams(count: int) -> None:
    stack = ops.Stack(torch.zeros(1), torch.zeros(1), 16 * count, "F32", 8)
    ops.dense_matvec(torch.zeros(1, 8), stack, Mixed(torch.zeros(1, 16 * count), torch.zeros(1, 16)))


LIMITS: list[tuple[str, int, int, Callable[[int], None]]] = [
    ("top_k", MOST_CHOSEN, 1, route),
    ("streams", MOST_STREAMS, 1, streams),
    ("head_dim", MOST_DIM, 8, lambda dim: attention(2, dim)),
    ("query_heads", MOST_HEADS, 1, lambda heads: attention(heads, 8)),
    ("indexer_heads", MOST_HEADS, 1, lambda heads: index(heads, 8)),
    ("indexer_dim", MOST_DIM, 8, lambda dim: index(2, dim)),
    ("gdn_conv", MOST_TAPS, 1, delta_conv),
    ("gdn_head_dim", MOST_DIM, 4, delta_step),
]


@pytest.mark.parametrize(("name", "most", "whole", "kernel"), LIMITS, ids=[limit[0] for limit in LIMITS])
def test_a_limit_is_the_kernels(name: str, most: int, whole: int, kernel: Callable[[int], None]) -> None:
    """One below and at the limit it goes on to look at memory, which is no card's here."""

    def refused(size: int) -> bool:
        with pytest.raises(ValueError) as raised:
            kernel(size)
        return "where a CUDA tensor is wanted" not in str(raised.value)

    for size, wrong in ((most, False), (most - whole, False), (most + whole, True), (most - 1, whole > 1)):
        g = dataclasses.replace(small_geometry(kv_heads=1, num_experts=64), **{name: size})
        faults = list(reply_faults(g))
        assert bool(faults) == refused(size) == wrong, (size, faults)
        assert all(f" {size} " in fault and str(most) in fault and "compute.device=cpu" in fault for fault in faults)


def test_parts_that_a_model_does_not_have_limit_nothing() -> None:
    g = small_geometry(head_dim=12, attention_interval=9, gdn_head_dim=16)
    assert not g.attention_layers and not list(reply_faults(g))
    assert list(reply_faults(small_geometry(head_dim=12))) == [
        "the model has 12 values a head, a card's kernels for replies take a multiple of 8 to 256: use compute.device=cpu"
    ]
