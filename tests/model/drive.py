"""Runs the model over spans the way an engine does, for tests: chunked order, experts from any provider."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from strata_recipes.model.experts import CpuExperts
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.qwen4_exp import Qwen4Exp


class FileExperts:
    """Experts straight from a pack's experts.bin, one blob read at a time into the same buffer."""

    def __init__(self, pack: Any) -> None:
        self._index, self._file = pack.index, np.memmap(pack.experts_path, np.uint8, "r")

    def blobs(self, layer: int, experts: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        buffer = np.empty(self._index.layers[layer].blob_bytes, np.uint8)
        for expert in experts:
            start = self._index.offset(layer, expert)
            buffer[:] = self._file[start : start + buffer.size]
            yield expert, buffer


def run_span(model: Qwen4Exp, pack: Any, tiers: Any, ids: np.ndarray, state: SequenceState, start: int) -> torch.Tensor:
    """Streams after the last layer for one span."""
    streams, experts = model.embed(ids), CpuExperts(pack.index, model.compute)
    for layer in range(model.geometry.num_layers):
        out = model.mixer(layer, streams, ids, state, start)
        experts(out, layer, tiers)
        streams = model.combine(out)
    return streams


def logits(model: Qwen4Exp, pack: Any, tiers: Any, ids: Sequence[int], chunk: int) -> tuple[np.ndarray, SequenceState]:
    """Logits [L, vocab] of a prompt read in spans of `chunk`, and the state after it."""
    tokens = np.asarray(ids, np.int64)
    state = model.new_state()
    spans = [(at, tokens[at : at + chunk]) for at in range(0, tokens.size, chunk)]
    found = [model.logits(run_span(model, pack, tiers, span, state, at)) for at, span in spans]
    return torch.cat(found).numpy(), state


def greedy(model: Qwen4Exp, pack: Any, tiers: Any, ids: Sequence[int], count: int, chunk: int = 512) -> tuple[list[int], list[float]]:
    """The continuation by argmax, and each choice's lead over the next best logit."""
    last, state = logits(model, pack, tiers, ids, chunk)
    row, tokens, leads = last[-1], [], []
    while len(tokens) < count:
        token = int(row.argmax())
        tokens.append(token)
        leads.append(float(row[token] - np.delete(row, token).max()))
        streams = run_span(model, pack, tiers, np.array([token]), state, state.num_tokens)
        row = model.logits(streams)[0].numpy()
    return tokens, leads


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Relative L2 error over all values."""
    return float(np.linalg.norm(ours.astype(np.float64) - theirs) / np.linalg.norm(theirs.astype(np.float64)))
