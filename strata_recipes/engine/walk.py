"""Spans of tokens on their way through the layers: does one visit at a time, in whatever order it is told. Knows no order.

Streams are kept by span between visits, so chunked and layer-major order run the same visits on the same values.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from strata_recipes.engine.kept_streams import KeptStreams, StreamsInPlace
from strata_recipes.model.experts import Blobs, Experts
from strata_recipes.model.kept_rows import KeptRows
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.mixer_out import MixerOut
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.schedule.prefill import Half, Visit

OnRouted = Callable[[int, NDArray[np.int64]], None]  # a layer, and the experts [T, k] that a span's tokens chose


@dataclass
class PhaseTimes:
    mixer_s: float = 0.0
    experts_s: float = 0.0
    logits_s: float = 0.0


class Walk:
    """One pass of `ids`, which stand at `first` and after it in the sequence, over the layers.

    `kept`: makes the place where a super-chunk's streams lie between its visits. Closed after the pass, whatever ends it. `times`: what
    to add to; None: its own.
    """

    def __init__(
        self,
        model: Qwen4Exp,
        experts: Experts,
        blobs: Blobs,
        state: SequenceState,
        ids: NDArray[np.int64],
        first: int = 0,
        kept: Callable[[int, int], KeptStreams] = lambda start, stop: StreamsInPlace(),
        on_routed: OnRouted | None = None,
        times: PhaseTimes | None = None,
    ) -> None:
        self.times = times or PhaseTimes()
        self.kept_bytes = 0  # the most that spans kept between their visits, but for the one at work
        self._model = model
        self._blobs = blobs
        self._run = experts
        self._state = state
        self._ids = ids
        self._first = first
        self._on_routed = on_routed
        self._streams: dict[tuple[int, int], Tensor] = {}  # by span, after its last experts half
        self._mixed: dict[tuple[int, int], MixerOut] = {}  # by span, waiting for the experts half
        self._rows: KeptRows | None = None  # of a super-chunk's spans
        self._make_kept = kept
        self._kept: KeptStreams = StreamsInPlace()

    def super_chunk(self, start: int, stop: int) -> None:
        """The spans of these tokens go through the experts together, layer by layer: their rows are kept side by side."""
        self.close()  # the last one's memory, before the new one's
        self._kept = self._make_kept(start, stop)
        self._rows = KeptRows(self._model.geometry, start, stop - start, self._model.device)

    def close(self) -> None:
        """Gives up what a super-chunk kept."""
        self._rows = None
        self._kept.close()
        self._kept = StreamsInPlace()

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
        return self._inside(visit, self._streams)

    def logits(self, span: tuple[int, int], every: bool, last: bool) -> NDArray[np.float32]:
        """Gives up a finished span's streams for the logits of `every` token [T, vocab], of its `last` alone [1, vocab], or of none.

        The last token of a prompt is always a matmul of one row, whose bits depend on the number of rows: what else is kept
        must not change the reply.
        """
        began = time.perf_counter()
        streams = self._kept.back(self._streams.pop(span))
        rows = streams[:-1] if last else streams
        parts = [self._model.logits(rows)] if every and len(rows) else []
        if last:
            parts.append(self._model.logits(streams[-1:]))
        values = [part.cpu().numpy() for part in parts]
        self.times.logits_s += time.perf_counter() - began
        return np.concatenate(values) if values else np.empty((0, self._model.geometry.vocab), np.float32)

    def _mixer(self, visit: Visit) -> None:
        span = (visit.start, visit.stop)
        ids = self._ids[visit.start - self._first : visit.stop - self._first]
        streams = self._model.embed(ids) if visit.layer == 0 else self._kept.back(self._streams.pop(span))
        out = self._model.mixer(visit.layer, streams, ids, self._state, visit.start)
        if self._on_routed is not None:
            self._on_routed(visit.layer, out.experts.cpu().numpy())
        if self._rows is not None:
            out = self._rows.keep(visit.start, dataclasses.replace(out, streams=self._kept.keep(out.streams, visit.start)))
        self._mixed[span] = out

    def _experts(self, visit: Visit) -> None:
        """Every waiting span inside the visit: together where their rows are kept side by side, so that each expert is fetched once."""
        spans = self._inside(visit, self._mixed)
        if self._rows is None:
            for span in spans:
                self._run(self._mixed[span], visit.layer, self._blobs, span[0])
        else:
            self.kept_bytes = max(self.kept_bytes, self._rows.num_bytes + sum(_kept(out) for out in self._mixed.values()))
            self._run(self._rows, visit.layer, self._blobs, self._rows.first)
        for span in spans:
            out = self._mixed.pop(span)
            out = dataclasses.replace(out, streams=self._kept.back(out.streams))
            self._streams[span] = self._kept.keep(self._model.combine(out), span[0])

    @staticmethod
    def _inside(visit: Visit, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        return sorted(span for span in spans if visit.start <= span[0] and span[1] <= visit.stop)


def _kept(out: MixerOut) -> int:
    return out.streams.nbytes + out.inject.nbytes
