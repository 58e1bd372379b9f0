"""The experts half of one layer for a few tokens, on kernels that a graph can capture. Knows no tier: an expert is an address."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from strata_recipes.model.projection import Projection, StoredVector, eight_bit
from strata_recipes.model.reply_buffers import ReplyBuffers
from strata_recipes.model.router import Router
from strata_recipes.model.shared_expert import SharedExpert
from strata_recipes.model.stored_matrix import PLAIN
from strata_recipes.pack.index import LayerExperts


class TokenExperts:
    """Routes x, runs what was chosen and the shared expert, and sums: x -> block. R rows choose k experts each."""

    def __init__(
        self, ops: Any, buffers: ReplyBuffers, router: Router, shared: SharedExpert, at: LayerExperts, compute: str, table: Tensor
    ) -> None:
        self._ops, self._b, self._at, self._table = ops, buffers, at, table
        self._eight_bit = compute == "q8"
        self._scores = Projection(ops, buffers, router.scores)
        self._shared_input, self._shared_down = (Projection(ops, buffers, m, beside="side_") for m in (shared.input, shared.down))
        gate = shared.gate
        self._shared_gate = Projection(ops, buffers, StoredVector(gate))
        rows, top_k = buffers["weights"].shape
        numbers = torch.arange(rows * top_k, dtype=torch.int32, device=gate.device)
        self._token_of, self._own = (numbers // top_k)[:, None].contiguous(), numbers[:, None].contiguous()

    def route(self, routed: Tensor, stream: int) -> None:
        """Chosen ids in ascending order to `routed` [R, k], their weights and addresses to the buffers."""
        b = self._b
        self._scores(b["x"], b["scores"], stream)
        self._ops.route_decode(b["scores"], self._table, routed, b["weights"], b["addresses"].view(routed.shape), b["nans"], stream)

    def shared(self, stream: int) -> None:
        b = self._b
        self._shared_input(b["x"], b["shared_gate_up"], stream)
        self._ops.silu_pair(b["shared_gate_up"], b["shared_hidden"], stream)
        self._shared_down(b["shared_hidden"], b["shared"], stream)
        self._shared_gate(b["x"], b["shared_gate"], stream)

    def inputs(self, addresses: Tensor, stream: int) -> None:
        """silu(gate) * up of the experts at `addresses` int64 [R * k]; where one is 0 its outputs stay as they were."""
        b, at = self._b, self._at
        if at.gate == at.up:
            self._multiply(b["x"], addresses, self._token_of, at.gate, 0, b["gate_up"][:, None], stream)
            self._ops.silu_pair(b["gate_up"], b["hidden"], stream)
        else:
            self._multiply(b["x"], addresses, self._token_of, at.gate, 0, b["gate"], stream)
            self._multiply(b["x"], addresses, self._token_of, at.up, at.gate_bytes, b["other"], stream)
            self._ops.silu_multiply(b["gate"][:, 0], b["other"][:, 0], b["hidden"], stream)

    def outputs(self, addresses: Tensor, stream: int) -> None:
        """Their down products, of that."""
        b, at = self._b, self._at
        self._multiply(b["hidden"], addresses, self._own, at.down, at.gate_bytes + at.up_bytes, b["y"], stream)

    def combine(self, stream: int) -> None:
        b = self._b
        self._ops.experts_combine(b["y"][:, 0], b["weights"], b["shared"], b["shared_gate"][:, 0], b["block"], stream)

    def _multiply(self, x: Tensor, table: Tensor, rows: Tensor, form: str, offset: int, out: Tensor, stream: int) -> None:
        ops, jobs = self._ops, self._ops.Jobs(table, rows, offset)
        if self._eight_bit and form not in PLAIN and x.shape[1] % 32 == 0:
            ops.matvec_q8(*eight_bit(ops, self._b, x, stream), jobs, form, out.shape[2], out, stream=stream)
        else:
            ops.matvec(x, jobs, form, out.shape[2], out, stream=stream)
