"""A prompt's visits in simulated time: the schedule's passes, alike ones counted, each layer's halves over compute, drive and link."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from strata_recipes.plan.budget import F32_BYTES
from strata_recipes.schedule.prefill import Half, Visit, pass_visits, passes
from strata_recipes.simulate.clock import BACK, CACHE, COMPUTE, CPU, DRIVE, LINK, VAIN, Clock
from strata_recipes.simulate.line import line_ends
from strata_recipes.simulate.load import PromptLoad
from strata_recipes.simulate.rates import Rates
from strata_recipes.simulate.tiers import Tiers, Touched
from strata_recipes.simulate.work import LayerWork, Work

SINGLE, GROWTH = 3, 2  # the first passes stand alone, later ones in groups of half of those before
RING_SLOTS = 4.0  # of two streams on their way, in and out


@dataclass(frozen=True)
class Group:
    """Passes in a row that differ only in how far into the prompt they are: each is taken as their mean."""

    first: int
    last: int  # token after the last pass
    count: int
    tokens: int  # of each


@dataclass(frozen=True)
class PromptBytes:
    """Of experts, by where they came from; the drive's with what was read ahead and not used."""

    drive: float
    cached: float
    ram: float
    vram: float
    staged: float
    touched: float  # of the file tier, each expert once


class Prompt:
    """One prompt, run once on a clock that starts with it."""

    def __init__(self, work: Work, rates: Rates, tiers: Tiers, load: PromptLoad) -> None:
        self.clock = Clock()
        self._work, self._rates, self._tiers, self._load = work, rates, tiers, load
        self._sums = [0.0] * 4

    def run(self) -> tuple[float, PromptBytes]:
        """Seconds and bytes."""
        load, clock = self._load, self.clock
        for group in groups(load):
            start, busy = clock.now, list(clock.busy)
            one = _Pass(self._work, self._rates, self._tiers, load, group, clock)
            clock.repeat(group.count, one.run)
            clock.span(f"tokens {group.first:,} to {group.last:,}", start, busy)
            self._count(one.touched, group.count)
        self._head()
        self._settle()
        stride = self._work.stride_bytes
        blob = sum(layer.blob_bytes for layer in self._work.layers)
        cold, cached, ram, vram = self._sums
        drive = cold * stride + clock.busy[VAIN] / self._rates.file(load.direct)
        once = self._tiers.routing.touched(self._tiers.file, load.tokens) * stride
        staged = (ram + cached + cold) * blob if self._rates.gpu else 0.0
        return clock.now, PromptBytes(drive, cached * stride, ram * blob, vram * blob, staged, once)

    def _count(self, touched: Touched, times: int) -> None:
        parts = (touched.cold, touched.cached, touched.ram, touched.vram)
        self._sums = [total + times * part for total, part in zip(self._sums, parts, strict=True)]

    def _head(self) -> None:
        """Only the last row gives logits; every token's embedding is looked up and expanded on the CPU."""
        work, rates = self._work, self._rates
        seconds = max(2.0 * work.head_values * rates.flop, work.head_bytes * rates.memory)
        embedding = self._load.tokens * work.g.hidden * rates.cpu_flop
        self.clock.free[COMPUTE] += seconds + embedding
        self.clock.work(COMPUTE, seconds)
        self.clock.work(CPU, embedding)

    def _settle(self) -> None:
        """Streamed dense weights go up once more, to stay for the reply."""
        if self._load.dense_streamed:
            seconds = sum(layer.stored_bytes for layer in self._work.layers) * self._rates.link
            self.clock.work(LINK, seconds)
            self.clock.free[COMPUTE] += seconds


def groups(load: PromptLoad) -> Iterator[Group]:
    """The schedule's passes in runs of one length, few enough to walk."""
    found = list(passes(load.tokens, load.super_chunk or load.chunk))
    at = 0
    while at < len(found):
        first, last = found[at]
        count = 1 if at < SINGLE else max(1, at // GROWTH)
        run = [span for span in found[at : at + count] if span[1] - span[0] == last - first]
        yield Group(first, run[-1][1], len(run), last - first)
        at += len(run)


class _Pass:
    """One pass over the layers: what its halves take, and how they queue."""

    def __init__(self, work: Work, rates: Rates, tiers: Tiers, load: PromptLoad, group: Group, clock: Clock) -> None:
        self._work, self._rates, self._tiers, self._load, self._group, self._clock = work, rates, tiers, load, group, clock
        self.touched = tiers.prompt(group.first, group.tokens, group.count, load.direct)
        self._mixers = {layer: self._mixer_s(layer) for layer in dict.fromkeys(work.layers)}
        self._chunks = len(list(passes(group.tokens, load.chunk)))
        self._routed = self.touched.file / tiers.in_file if tiers.in_file else 1.0
        self._start = 0.0
        self._below = 0.0  # when the layer below began: from then on there is room for this one's dense weights
        self._schedules: dict[int, tuple[Visit, ...]] = {}

    def run(self) -> None:
        for count, block in self._work.blocks:
            self._clock.repeat(count, partial(self._block, block))

    def _block(self, block: tuple[LayerWork, ...]) -> None:
        """The visits of these layers, as the schedule has them."""
        for visit in self._visits(len(block)):
            if visit.half is Half.mixer:
                self._start = self._clock.now
                self._mixer(block[visit.layer])
            else:
                self._experts(block[visit.layer])

    def _visits(self, num_layers: int) -> tuple[Visit, ...]:
        """A pass's mixer chunks are one step here: nothing comes between them."""
        if num_layers not in self._schedules:
            tokens = self._group.tokens
            self._schedules[num_layers] = tuple(pass_visits(range(num_layers), 0, tokens, tokens))
        return self._schedules[num_layers]

    def _mixer_s(self, layer: LayerWork) -> float:
        """All chunks of the pass: operations, or the dense weights once a chunk where those take longer."""
        group, load, rates = self._group, self._load, self._rates
        ops = self._work.mixer_ops(layer, group.first, group.last) / group.count
        chunks = -(-group.tokens // load.chunk)
        weights = layer.stored_bytes if rates.gpu else layer.values * F32_BYTES
        return max(ops * rates.flop, chunks * weights * rates.memory)

    def _mixer(self, layer: LayerWork) -> None:
        clock, rates, g = self._clock, self._rates, self._work.g
        self._dense(layer)
        seconds = self._mixers[layer]
        streams = self._group.tokens * g.streams * g.hidden * F32_BYTES if self._load.super_chunk else 0
        clock.work(COMPUTE, seconds)
        if not (self._load.streams_cross and rates.gpu):
            kept = 2 * streams * rates.memory
            clock.work(COMPUTE, kept)
            clock.free[COMPUTE] += seconds + kept
            return
        over, n = streams * rates.link, self._chunks
        clock.work(LINK, over)
        clock.work(BACK, over)
        free = [max(clock.free[LINK], clock.asked), clock.free[COMPUTE], clock.free[BACK]]
        ends = line_ends(n, [over / n, seconds / n, over / n], free, RING_SLOTS)
        clock.free[LINK], clock.free[COMPUTE], clock.free[BACK] = ends

    def _dense(self, layer: LayerWork) -> None:
        """Streamed weights go up while the layer below is at work, and this one waits for them."""
        if self._load.dense_streamed:
            clock = self._clock
            seconds = layer.stored_bytes * self._rates.link
            clock.work(LINK, seconds)
            clock.free[LINK] = max(clock.free[LINK], self._below) + seconds
            clock.free[COMPUTE] = max(clock.free[COMPUTE], clock.free[LINK])
            self._below = self._start

    def _experts(self, layer: LayerWork) -> None:
        clock, rates, load, touched = self._clock, self._rates, self._load, self.touched
        ready = clock.free[COMPUTE]
        ops_s = self._work.expert_ops(self._group.tokens) * rates.flop
        compute = max(ops_s, touched.total * layer.blob_bytes * rates.memory)
        cold, cached = touched.cold * layer.stride * rates.file(load.direct), touched.cached * layer.stride * rates.cached
        asked, clock.asked = (clock.asked, self._start) if load.prefetch else (ready, ready)
        clock.work(COMPUTE, compute)
        clock.work(DRIVE, cold)
        clock.work(CACHE, cached)
        if not rates.gpu and not load.direct and not load.prefetch:
            clock.free[COMPUTE] = ready + compute + cold + cached  # the thread that computes takes the faults
            clock.free[DRIVE] = clock.free[COMPUTE]
            return
        drive = max(clock.free[DRIVE], asked)
        drive += self._in_vain(layer, ready - drive) if load.prefetch else 0.0
        jobs = touched.file + (touched.ram if rates.gpu else 0.0)
        if jobs <= 0:
            clock.free[COMPUTE] = ready + compute
            return
        link = jobs * layer.blob_bytes * rates.link
        clock.work(LINK, link)
        whole = max(jobs, 1.0)
        stages = [seconds / whole for seconds in (cold, cached, link, compute)]
        free = [drive, max(clock.free[CACHE], asked), max(clock.free[LINK], asked), ready]
        ends = line_ends(whole, stages, free, load.buffers)
        clock.free[DRIVE], clock.free[CACHE], clock.free[LINK], clock.free[COMPUTE] = ends

    def _in_vain(self, layer: LayerWork, left: float) -> float:
        """Drive seconds for experts that are read in file order before the routing is known, and then not wanted."""
        a_blob = layer.stride * self._rates.file(self._load.direct) * (self.touched.cold / self.touched.file if self.touched.file else 0.0)
        most = min(self._load.buffers, self._tiers.in_file)
        ahead = min(most * a_blob, max(0.0, left))
        seconds = ahead * (1.0 - self._routed)
        self._clock.work(DRIVE, seconds)
        self._clock.work(VAIN, seconds)
        return seconds
