"""A reply's mean round in simulated time: layer after layer, since each layer's routing follows from the one below. Reads no clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from strata_recipes.plan.budget import F32_BYTES
from strata_recipes.simulate.clock import CACHE, COMPUTE, CPU, DRIVE, LINK, Clock
from strata_recipes.simulate.line import line_ends
from strata_recipes.simulate.load import ReplyLoad
from strata_recipes.simulate.rates import Rates
from strata_recipes.simulate.tiers import Tiers, Touched
from strata_recipes.simulate.work import SAMPLER_OPS, LayerWork, Work

BUFFERS = 8.0  # blobs on their way: the stage ring


@dataclass(frozen=True)
class Round:
    """One round: its seconds, and the experts of a layer that it used, by where they came from."""

    seconds: float
    touched: Touched


class Reply:
    """`before`: tokens that went through the page cache ahead of the reply; `context`: of its middle."""

    def __init__(self, work: Work, rates: Rates, tiers: Tiers, load: ReplyLoad, before: int, context: int) -> None:
        self.clock = Clock()
        self._work, self._rates, self._load, self._context = work, rates, load, context
        tokens = max(1, load.new_tokens)
        self._touched = tiers.reply(before, tokens, load.drafted, tokens / load.tokens_a_round, load.direct)

    def run(self) -> Round:
        for count, block in self._work.blocks:
            self.clock.repeat(count, partial(self._block, block))
        self._head()
        return Round(self.clock.now, self._touched)

    def _block(self, block: tuple[LayerWork, ...]) -> None:
        for layer in block:
            self._mixer(layer)
            self._experts(layer)

    def _head(self) -> None:
        work, rates, g = self._work, self._rates, self._work.g
        stored = work.head_bytes if rates.gpu else work.head_values * F32_BYTES
        ops = self._load.drafted * 2.0 * work.head_values
        self._compute(max(stored * rates.reply_memory, ops * rates.flop))
        on_cpu = self._load.drafted * (g.hidden + SAMPLER_OPS * g.vocab) * rates.cpu_flop  # the embedding's row, the choice of a token
        self.clock.free[COMPUTE] += on_cpu
        self.clock.work(CPU, on_cpu)

    def _mixer(self, layer: LayerWork) -> None:
        load, rates, work = self._load, self._rates, self._work
        stored = layer.stored_bytes if rates.gpu else layer.values * F32_BYTES
        far = load.drafted * work.far_kv_bytes(layer, load.kv_format, self._context, load.resident)
        num_bytes = stored + load.drafted * work.attention_bytes(layer, load.kv_format, self._context) - far
        ops = work.mixer_ops(layer, self._context, self._context + load.drafted)
        if far:
            self.clock.work(LINK, far * rates.link)
        self._compute(max(num_bytes * rates.reply_memory, ops * rates.flop) + far * rates.link)  # the kernel reads in place

    def _compute(self, seconds: float) -> None:
        self.clock.free[COMPUTE] += seconds
        self.clock.work(COMPUTE, seconds)

    def _experts(self, layer: LayerWork) -> None:
        """Those in slots at once; the others as they come, a share of them on the processor where they lie."""
        clock, rates, load, touched = self.clock, self._rates, self._load, self._touched
        ready = clock.free[COMPUTE]
        beside = load.cpu_share if rates.gpu else 0.0
        missed = touched.ram + touched.file
        here = touched.total - beside * missed
        ops = self._work.expert_ops(load.drafted) * here / touched.total if touched.total else 0.0
        compute = max(here * layer.blob_bytes * rates.reply_memory, ops * rates.flop)
        cold, cached = touched.cold * layer.stride * rates.file(load.direct), touched.cached * layer.stride * rates.cached
        clock.work(COMPUTE, compute)
        clock.work(DRIVE, cold)
        if not rates.gpu and not load.direct:
            clock.work(CACHE, cached)
            clock.free[COMPUTE] = ready + compute + cold + cached  # the thread that computes takes the faults
            return
        jobs = missed if rates.gpu else touched.file
        if jobs <= 0:
            clock.free[COMPUTE] = ready + compute
            return
        link = (1.0 - beside) * missed * layer.blob_bytes * rates.link
        copied = (1.0 - beside) * cached
        on_cpu = beside * missed * layer.blob_bytes * rates.reply_ram
        for resource, seconds in ((CACHE, copied), (LINK, link), (CPU, on_cpu)):
            clock.work(resource, seconds)
        whole = max(jobs, 1.0)
        stages = [seconds / whole for seconds in (cold, copied, link, compute)]
        clock.free[COMPUTE] = max(line_ends(whole, stages, [ready] * 4, BUFFERS)[-1], ready + cold / whole + on_cpu)
