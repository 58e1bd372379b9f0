"""What is compiled before a reply is all that its passes ask for, whatever is drafted; the numpy truth stands in for a card's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kernels_numba import gpu
from kernels_numba.gpu import index_decode
from strata_recipes.engine.warm_up import _reply
from strata_recipes.model.reply_buffers import ReplyBuffers
from strata_recipes.model.token_layers import TokenLayers
from strata_recipes.pack.reader import Pack
from tests.model.test_token_layers import InFile, Truth, small_step, stored_model

MOST = 5


class Seen(Truth):
    """The rows of each product with dense weights, and of each choice of experts."""

    def __init__(self) -> None:
        self.products: set[int] = set()
        self.passes: list[int] = []

    @staticmethod
    def _fits(x: Tensor, array: Tensor) -> Tensor:
        assert x.is_contiguous() and x.shape[0] == array.shape[0]
        return array

    def __getattr__(self, name: str) -> Callable[..., None]:
        op = super().__getattr__(name)

        def seen(*arguments: Any) -> None:
            if name == "dense_matvec":
                arguments[2].changed(lambda array: self._fits(arguments[0], array))
                self.products.add(arguments[0].shape[0])
            if name == "route_decode" and arguments[0].shape[0] not in self.passes:
                self.passes.append(arguments[0].shape[0])
            op(*arguments)

        return seen


@pytest.mark.parametrize(("most", "products"), [(1, {1}), (MOST, {1, MOST})])
def test_every_number_of_rows_that_a_pass_may_have(most: int, products: set[int], tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products with dense weights, of which a kernel is compiled for a number of rows, have two of them. Blocks are ranked by a kernel for
    as many as a reply's context has, though the passes here have a short one."""
    ops, ranked, model = Seen(), [], stored_model(tiny)
    monkeypatch.setattr(gpu, "token_ops", ops, raising=False)
    monkeypatch.setattr(index_decode, "load_selection", lambda *arguments: ranked.append(arguments))
    for step in _reply(model, tiny.index, False, most):
        step()
    assert ops.passes == list(range(1, most + 1)) and ops.products == products
    g = tiny.index.geometry
    scores = ReplyBuffers(g, 1, model.max_context, model.device)["index_scores"]
    assert ranked == [(scores.shape[1], g.index_block)] and scores.shape[1] > 1


def test_rows_beyond_a_pass_change_nothing(tiny: Pack) -> None:
    """Passes of all lengths in one set of buffers, over what longer ones left there, against passes that have buffers of their own."""
    model, experts, g = stored_model(tiny), InFile(tiny), tiny.index.geometry
    ids, at, found = [int(token) for token in np.arange(3, 3 + 21) * 7 % g.vocab], 0, []
    ours, theirs = model.new_state(64), model.new_state(64)
    room, ops = ReplyBuffers(g, MOST, 64, model.device), Seen()
    room.memory[:] = 255  # NaNs, in rows that nothing has written to
    for rows in (1, 3, MOST, 2, 1, 4, MOST):
        inside, own = (ReplyBuffers(g, rows, 64, model.device, within) for within in (room, None))
        for name in ("chosen", "nans"):
            inside[name].zero_()
        for buffers, state, kernels in ((inside, ours, ops), (own, theirs, Truth())):
            layers = TokenLayers(kernels, model, tiny.index, state, experts.table, buffers)
            found.append(small_step(model, layers, state, ids[at : at + rows]))
        got, want = found[-2:]
        assert got.shape == (rows, g.vocab)
        assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()  # numpy's sums depend on the number of rows
        at += rows
    assert ops.products == {1, MOST}
    for layer, delta in theirs.delta.items():
        assert torch.allclose(ours.delta[layer].delta, delta.delta, rtol=1e-4, atol=1e-5)
