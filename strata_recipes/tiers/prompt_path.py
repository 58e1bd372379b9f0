"""A prompt's way through the tiers: asks for the experts of the next layers before their routing is known. Knows no order of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

from strata_recipes.files.source import Bytes
from strata_recipes.tiers.cuda_slots import Slot
from strata_recipes.tiers.file_tier import StagedVisit
from strata_recipes.tiers.lookup import ExpertTiers
from strata_recipes.tiers.stager import Job

AHEAD = 2  # layers asked for: the one at work and the next; buffers bound what is read
Warm = Callable[[int, int], None]  # told (offset, bytes) that will be read


class PromptPath:
    """One prompt's blobs. A context manager: what was asked for and not used is given up at its end, whatever ends it.

    `layers`: those of the experts visits to come, in order. `prefetch`: a layer's file experts are asked for in file order, which
    is the order of their use, when its mixer starts; those that the routing skips are dropped as soon as it is known.
    `warm`: told the ranges of a layer's file experts at that moment.
    """

    def __init__(self, tiers: ExpertTiers, layers: Iterator[int], *, prefetch: bool, warm: Warm | None = None) -> None:
        self._tiers = tiers
        self._layers = layers
        self._warm = warm
        self._staged = tiers.prompt
        self._prefetch = prefetch and self._staged is not None
        self._asked: deque[tuple[int, dict[int, Job]]] = deque()  # layers ahead, each with its jobs by expert
        self._read_before = self._staged.file.counters.bytes_read if self._staged else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for _, jobs in self._asked:
            self._skip(jobs.values())
        self._asked.clear()

    def layer_starts(self) -> None:
        """A layer's mixer starts: its experts are asked for, and the next layer's."""
        if not self._prefetch and self._warm is None:
            return
        while len(self._asked) < AHEAD and (layer := next(self._layers, None)) is not None:
            self._asked.append((layer, self._ask(layer)))

    def blobs(self, layer: int, experts: Sequence[int]) -> Iterator[tuple[int, Bytes | Slot]]:
        """(expert, blob) for ascending ids, as ExpertTiers gives them."""
        jobs = self._asked_for(layer)
        if self._staged is None:
            return self._tiers.blobs(layer, experts)
        in_file = self._tiers.in_file(layer, experts)
        if self._prefetch:
            wanted = set(in_file)
            self._skip(job for expert, job in jobs.items() if expert not in wanted)
            visit = StagedVisit(self._staged.stager, self._tiers.index.layers[layer].blob_bytes, [jobs[expert] for expert in in_file])
            return self._tiers.through(layer, experts, visit)
        return self._tiers.through(layer, experts, self._staged.visit(layer, in_file))

    def read_bytes(self) -> int | None:
        """Bytes that this prompt read of the file, those dropped included; None where it does not read through the stager."""
        if self._staged is None:
            return None
        self._staged.stager.settle()
        return self._staged.file.counters.bytes_read - self._read_before

    def _asked_for(self, layer: int) -> dict[int, Job]:
        if not self._asked:
            return {}
        assert self._asked[0][0] == layer, f"layer {layer} came where {self._asked[0][0]} was announced"
        return self._asked.popleft()[1]

    def _ask(self, layer: int) -> dict[int, Job]:
        index = self._tiers.index
        at, found = index.layers[layer], self._tiers.in_file(layer, range(index.geometry.num_experts))
        if self._warm is not None:
            for expert in found:
                self._warm(index.offset(layer, expert), at.stride)
        if not self._prefetch or self._staged is None:
            return {}
        return {expert: self._staged.stager.submit(index.offset(layer, expert), at.stride) for expert in found}

    def _skip(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            assert self._staged is not None, "without a stager there are no jobs"
            self._staged.stager.skip(job)
