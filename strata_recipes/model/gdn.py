"""The gated delta net: linear attention whose state is one matrix a head, rewritten token by token.

T tokens, K key heads, V value heads, D head dimension. Value heads are tiled: value head v reads key head v % K.
The recurrent form takes one token, the chunked form a span: same mathematics, other rounding.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from strata_recipes.model.kv_cache import DeltaState, DeltaWrite
from strata_recipes.model.norm import rms_norm, unit_norm
from strata_recipes.model.short_conv import short_conv
from strata_recipes.model.weights import Weights
from strata_recipes.pack.index import Geometry
from strata_recipes.plan.budget import GDN_CHUNK, GDN_GROUP

_GATES: dict[str, Callable[[Tensor], Tensor]] = {"sigmoid": torch.sigmoid, "silu": functional.silu}
Form = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


class GatedDeltaNet:
    """One GDN layer."""

    def __init__(self, weights: Weights, g: Geometry) -> None:
        self._keys, self._values, self._dim, self._eps = g.gdn_key_heads, g.gdn_value_heads, g.gdn_head_dim, g.norm_eps
        self._gate = _GATES[g.output_gate]
        self.input = weights.matrix("attn_qkv.weight", "attn_gate.weight")
        self.rates = weights.matrix("ssm_alpha.weight", "ssm_beta.weight")
        self.conv = weights.tensor("ssm_conv1d.weight")
        self.decay, self.bias = weights.tensor("ssm_a"), weights.tensor("ssm_dt.bias")
        self.norm, self.output = weights.tensor("ssm_norm.weight"), weights.matrix("ssm_out.weight")

    def __call__(self, x: Tensor, state: DeltaState, written: list[DeltaWrite] | None = None) -> Tensor:
        """[T, H] -> [T, H]; the state moves on by T tokens. `written` is told what a single token writes."""
        num_tokens, key_values, heads = x.shape[0], self._keys * self._dim, self._values
        mixed, gate = self.input(x).tensor_split([self.conv.shape[0]], dim=1)
        alpha, beta = self.rates(x).tensor_split(2, dim=1)
        mixed = short_conv(mixed, state.conv, self.conv)
        q, k, v = (part.reshape(num_tokens, -1, self._dim) for part in mixed.tensor_split([key_values, 2 * key_values], dim=1))
        q, k = (unit_norm(part).repeat(1, heads // self._keys, 1) for part in (q, k))
        log_decay = self.decay * functional.softplus(alpha + self.bias)
        if written is not None:
            assert num_tokens == 1, f"{num_tokens} tokens at once cannot be written again one by one"
            written.append(DeltaWrite(k, v, log_decay, torch.sigmoid(beta)))
        form: Form = recurrent if num_tokens == 1 else chunked
        read = form(q * self._dim**-0.5, k, v, log_decay, torch.sigmoid(beta), state.delta)
        read = rms_norm(read, self.norm, self._eps) * self._gate(gate.view_as(read))
        return self.output(read.flatten(1))


def recurrent(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor) -> Tensor:
    """One token: q, k, v [1, V, D], log_decay and beta [1, V]; state [V, D key, D value] is moved on. Returns [1, V, D]."""
    write(DeltaWrite(k, v, log_decay, beta), state)
    return (q[0, :, None] @ state).transpose(0, 1)


def write(token: DeltaWrite, state: Tensor) -> None:
    """One token into state [V, D key, D value]; the same bits each time."""
    key = token.key[0, :, None]
    state *= token.log_decay[0].exp()[:, None, None]
    correction = (token.value[0, :, None] - key @ state) * token.beta[0, :, None, None]
    state += key.transpose(1, 2) * correction


def chunked(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor) -> Tensor:
    """T tokens: q, k, v [T, V, D], log_decay and beta [T, V]; state [V, D key, D value] is moved on. Returns [T, V, D]."""
    parts = zip(*(torch.split(part, GDN_GROUP) for part in (q, k, v, log_decay, beta)), strict=True)
    return torch.cat([_group(*part, state) for part in parts])


def _group(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor) -> Tensor:
    """What token i writes is what v_i adds to all that was read before it at k_i, so the corrections of C tokens solve a unit lower
    triangular system. All chunks' systems are solved at once; only what meets the state goes chunk by chunk."""
    num_tokens = v.shape[0]
    q, k, v = (_cut(part) for part in (q, k, v))  # [V, N, C, D]
    log_decay, beta = (_cut(part[:, :, None]) for part in (log_decay, beta))  # [V, N, C, 1]; a token of filling changes nothing
    total = log_decay.cumsum(2)  # log of the decay since the chunk began, the token's own included
    between = (total - total.transpose(2, 3)).masked_fill(_future(v.shape[2], v.device), -torch.inf).exp()  # from j to i, 0 for j > i
    grown, last = total.exp(), total[:, :, -1:]
    system = beta * (k @ k.transpose(2, 3)) * between
    wanted = torch.cat((beta * v, beta * grown * k), dim=3)
    added, seen = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True).chunk(2, dim=3)
    read, attend = grown * q, (q @ k.transpose(2, 3)) * between
    kept, decay = (k * (last - total).exp()).transpose(2, 3), last.exp()
    out = torch.empty_like(v)
    for n in range(v.shape[1]):
        written = torch.baddbmm(added[:, n], seen[:, n], state, alpha=-1)
        out[:, n] = torch.baddbmm(attend[:, n] @ written, read[:, n], state)
        state.mul_(decay[:, n]).baddbmm_(kept[:, n], written)
    return out.flatten(1, 2)[:, :num_tokens].transpose(0, 1)


def _cut(x: Tensor) -> Tensor:
    """[T, V, D] -> [V, N, C, D], zeros after the last token; a span shorter than a chunk is one chunk of its own length."""
    num_tokens, heads, width = x.shape
    size = min(GDN_CHUNK, num_tokens)
    filled = functional.pad(x, (0, 0, 0, 0, 0, -num_tokens % size))
    return filled.transpose(0, 1).reshape(heads, -1, size, width)


def _future(size: int, device: torch.device) -> Tensor:
    return torch.ones(size, size, dtype=torch.bool, device=device).triu(1)
