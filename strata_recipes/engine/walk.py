"""Spans of tokens on their way through the layers: does one visit at a time, in whatever order it is told. Knows no order.

Streams are kept by span between visits, so chunked and layer-major order run the same visits on the same values.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from strata_recipes.model.experts import run_experts
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.mixer_out import MixerOut
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.schedule.prefill import Half, Visit
from strata_recipes.tiers.lookup import ExpertTiers


@dataclass
class PhaseTimes:
    mixer_s: float = 0.0
    experts_s: float = 0.0
    logits_s: float = 0.0


class Walk:
    """One pass of `ids`, which stand at `first` and after it in the sequence, over the layers."""

    def __init__(self, model: Qwen4Exp, tiers: ExpertTiers, state: SequenceState, ids: NDArray[np.int64], first: int = 0) -> None:
        self.times = PhaseTimes()
        self._model = model
        self._tiers = tiers
        self._state = state
        self._ids = ids
        self._first = first
        self._streams: dict[tuple[int, int], Tensor] = {}  # by span, after its last experts half
        self._mixed: dict[tuple[int, int], MixerOut] = {}  # by span, waiting for the experts half

    def do(self, visit: Visit) -> None:
        """One visit; a span's mixer comes before its experts, a layer after the layer below."""
        began = time.perf_counter()
        if visit.half is Half.mixer:
            self._mixer(visit)
            self.times.mixer_s += time.perf_counter() - began
        else:
            self._experts(visit)
            self.times.experts_s += time.perf_counter() - began

    def finished(self, visit: Visit) -> list[tuple[int, int]]:
        """Spans that this visit brought to the top, in token order."""
        if visit.half is Half.mixer or visit.layer + 1 < self._model.geometry.num_layers:
            return []
        return sorted(span for span in self._streams if visit.start <= span[0] and span[1] <= visit.stop)

    def logits(self, span: tuple[int, int], every: bool, last: bool) -> NDArray[np.float32]:
        """Gives up a finished span's streams for the logits of `every` token [T, vocab], of its `last` alone [1, vocab], or of none.

        The last token of a prompt is always a matmul of one row, whose bits depend on the number of rows: what else is kept
        must not change the reply.
        """
        began = time.perf_counter()
        streams = self._streams.pop(span)
        rows = streams[:-1] if last else streams
        parts = [self._model.logits(rows)] if every and len(rows) else []
        if last:
            parts.append(self._model.logits(streams[-1:]))
        values = [part.numpy() for part in parts]
        self.times.logits_s += time.perf_counter() - began
        return np.concatenate(values) if values else np.empty((0, self._model.geometry.vocab), np.float32)

    def _mixer(self, visit: Visit) -> None:
        span = (visit.start, visit.stop)
        ids = self._ids[visit.start - self._first : visit.stop - self._first]
        streams = self._model.embed(ids) if visit.layer == 0 else self._streams.pop(span)
        self._mixed[span] = self._model.mixer(visit.layer, streams, ids, self._state, visit.start)

    def _experts(self, visit: Visit) -> None:
        """Every waiting span inside the visit. Each span asks the tiers for its own experts."""
        for span in sorted(span for span in self._mixed if visit.start <= span[0] and span[1] <= visit.stop):
            out = self._mixed.pop(span)
            run_experts(out, visit.layer, self._tiers.index, self._tiers, self._model.compute)
            self._streams[span] = self._model.combine(out)
