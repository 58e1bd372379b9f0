"""A model ready to read and write: builds ledger, tiers and dense weights as the plan says, and closes them whatever happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from strata_recipes.engine.adapt import Adapting, adapting
from strata_recipes.engine.decode import DecodeResult, Limits, decode
from strata_recipes.engine.drafts import drafter_for
from strata_recipes.engine.figures import MemoryFigures, StartParts, Threads
from strata_recipes.engine.kept_streams import KeptStreams, StreamsInPlace, StreamsInRam
from strata_recipes.engine.kv_memory import LockedCells
from strata_recipes.engine.page_warmth import PageWarmth
from strata_recipes.engine.prefill import Keep, PrefillResult, prefill
from strata_recipes.engine.process import process_use, since
from strata_recipes.engine.replies import Replies
from strata_recipes.engine.startup import Order, StartedTiers, start
from strata_recipes.engine.stepper import Logits
from strata_recipes.engine.walk import OnRouted
from strata_recipes.engine.warm_up import WarmUp
from strata_recipes.engine.watching import Hooks
from strata_recipes.errors import ConfigError, DeviceError
from strata_recipes.machine.cores import usable_cores
from strata_recipes.model.experts import CpuExperts, Experts
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.kv_cells import host_bytes
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.model.sampler import generator, sample
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.budget import BLOBS, KV, RING, SLOTS, START
from strata_recipes.plan.plan import Plan
from strata_recipes.tiers.ledger import Ledger
from strata_recipes.tiers.verify import tier_checksums

if TYPE_CHECKING:  # numba-cuda takes a second to import, for those who have a card
    from strata_recipes.engine.card import Card

Checksums = list[tuple[int, int, int]]


class Session:
    """One plan carried out. A context manager: experts are in their tiers from `with` on, and nothing is left after it.

    `order`: (layer, expert) pairs, hottest first, as the plan was made from; None: the pack's. `poison`: freed buffers are
    overwritten, for tests.
    """

    def __init__(self, plan: Plan, pack: Pack, *, order: Order | None = None, hooks: Hooks | None = None, poison: bool = False) -> None:
        self.plan = plan
        self.pack = pack
        self.ledger = Ledger(plan.vram.limit_bytes, plan.ram.limit_bytes)
        self._order = order
        self._hooks = hooks or Hooks()
        self._poison = poison
        self._opened = ExitStack()
        self._before = process_use()
        self._sample = partial(sample, decode=plan.decode, rng=generator(plan.decode))
        self._model: Qwen4Exp | None = None
        self._experts: Experts | None = None
        self._card: Card | None = None
        self._replies: Replies | None = None
        self._kept_state: SequenceState | None = None  # of a card: graphs hold its addresses
        self._far_cells: LockedCells | None = None  # a card's, beyond kv.resident_tokens
        self.took = StartParts()
        self._started: StartedTiers | None = None
        self._adapt: Adapting | None = None
        self._state: SequenceState | None = None
        self._last: Logits | None = None
        self._ids = np.empty(0, np.int64)  # of the prompt that was read

    def __enter__(self) -> Self:
        plan = self.plan
        try:
            self._take_parts()
            self.threads = self._set_threads()
            with self._memory():
                self._load()
            warm = self._warming()
            order = self.pack.order() if self._order is None else self._order
            self._started = start(plan, self.pack, order, self.ledger, self._hooks, card=self._card, poison=self._poison)
            self._opened.callback(self._started.tiers.close)
            if self._card is not None:
                self._opened.callback(torch.cuda.synchronize)  # no copy is under way from memory that is given back next
            self._adapt = adapting(plan, self._started.tiers, order, self._opened)
            self._compiled(warm)
            self._replies = Replies(plan, self.pack.index, *self._ready(), self._started.tiers, self._card, warm, self._adapt)
            self._opened.callback(self._replies.close)
            if self._card is not None:
                self._opened.callback(torch.cuda.synchronize)  # nor does an interrupted reply's graph read what it gives back
            if plan.startup.warm_bytes:
                self._opened.callback(PageWarmth(self._started.tiers, order, plan.startup.warm_bytes, self._hooks.log).close)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Gives everything back; closing twice is nothing."""
        self._state = self._kept_state = self._last = self._model = self._experts = self._adapt = self._replies = None
        self._opened.close()

    @property
    def started(self) -> StartedTiers:
        """The tiers and what the start took."""
        if self._started is None:
            raise RuntimeError("the session was not entered: use `with`")
        return self._started

    def prompt(
        self,
        ids: Sequence[int] | NDArray[np.integer],
        *,
        logits: str = "none",
        on_chunk: Callable[[int, int], None] = lambda done, total: None,
        cancelled: Callable[[], bool] = lambda: False,
        on_routed: OnRouted | None = None,
    ) -> PrefillResult:
        """Reads a prompt into a new sequence. `logits`: none, last or all. Cancelled or failed, the sequence is given up.

        `on_routed(layer, experts [T, k])` hears of each span's choices.
        """
        tokens = self._checked(ids)
        self._state = self._last = None  # the old sequence's memory, before the new one's
        model, experts = self._ready()
        tiers = self.started.tiers
        tiers.check()
        if self._replies is not None and self.plan.prefill.dense == "streamed":
            self._replies.let_go()
        state = self._new_state(model)
        ring = self.plan.vram.part(RING) > 0
        with self._memory():
            result = prefill(
                model,
                experts,
                tiers,
                state,
                tokens,
                self.plan.prefill,
                keep=Keep(logits),
                on_chunk=on_chunk,
                cancelled=cancelled,
                ring=ring,
                kept=self._kept,
                on_routed=on_routed,
            )
        self._state, self._last, self._ids = state, result.last, tokens
        return result

    def generate(self, *, max_new_tokens: int | None = None, on_token: Callable[[int], None] = lambda token: None) -> DecodeResult:
        """Continues the prompt that was read, once; None: as many tokens as the plan says."""
        state, last = self._state, self._last
        if state is None or last is None or self._replies is None:
            raise RuntimeError("there is no prompt to continue: read one first")
        plan, tiers = self.plan, self.started.tiers
        tiers.check()
        self._state = self._last = None
        wanted = plan.decode.max_new_tokens if max_new_tokens is None else max_new_tokens
        eos = self.pack.eos_token_ids if plan.decode.stop_at_eos else ()
        limits = Limits(wanted, plan.kv.max_context - state.num_tokens, eos)
        drafter = drafter_for(plan.decode, self._ids, min(wanted, limits.room))
        make = partial(self._replies.stepper, state)
        with self._memory():
            return decode(make, last, self._sample, limits, drafter=drafter, adapt=self._adapt, on_token=on_token)

    def learned(self) -> NDArray[np.int64] | None:
        """How often the replies' tokens chose each expert so far, [layers, experts]; None where the plan has nothing counted."""
        return None if self._adapt is None else self._adapt.counted()

    def checksums(self) -> tuple[Checksums, Checksums]:
        """(layer, expert, checksum) of the slots and of the RAM blobs, read back from where they lie."""
        tiers = self.started.tiers
        return tier_checksums(tiers.vram), tier_checksums(tiers.ram)

    def memory(self) -> MemoryFigures:
        """Memory's figures up to now."""
        now, before, use = process_use(), self._before, self.ledger.use()
        return MemoryFigures(
            rss_before_fill_bytes=self.started.rss_before_fill_bytes,
            major_faults=since(now.major_faults, before.major_faults),
            pages_in=since(now.pages_in, before.pages_in),
            pages_out=since(now.pages_out, before.pages_out),
            vram_peak_bytes=use.vram.peak_bytes if self._card is None else self._card.peak_bytes(),
            vram_budget_bytes=use.vram.limit_bytes,
            ram_peak_bytes=use.ram.peak_bytes,
            ram_budget_bytes=use.ram.limit_bytes,
        )

    def _take_parts(self) -> None:
        """The plan's fixed parts of both budgets; the start and the expert tiers take their own."""
        for budget in (self.plan.vram, self.plan.ram):
            for part in budget.parts:
                if part.name not in (SLOTS, BLOBS, START):
                    self._opened.callback(self.ledger.take(budget.name, part.name, part.num_bytes).give_back)

    def _set_threads(self) -> Threads:
        wanted, had = self.plan.compute.threads, Threads(torch.get_num_threads(), numba.get_num_threads())
        most = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # made when numba is imported
        given = Threads(min(wanted, usable_cores()), min(wanted, most))
        self._opened.callback(torch.set_num_threads, had.torch)
        self._opened.callback(numba.set_num_threads, had.kernels)
        torch.set_num_threads(given.torch)
        numba.set_num_threads(given.kernels)
        if given.torch < wanted:
            self._hooks.note(
                f"{given.torch} threads run of the planned {wanted}, as this PC has no more cores: "
                f"logits may differ from the planned PC's by 1e-5 (relative L2), and are the same bits on this one"
            )
        return given

    def _checked(self, ids: Sequence[int] | NDArray[np.integer]) -> NDArray[np.int64]:
        tokens, context = np.asarray(ids, np.int64), self.plan.kv.max_context
        if tokens.ndim != 1 or tokens.size == 0:
            raise ConfigError(
                f"the prompt has {tokens.size} tokens in {tokens.ndim} dimensions, one row of at least 1 is wanted: state workload.text"
            )
        if tokens.size > context:
            raise ConfigError(
                f"the prompt has {tokens.size} tokens, the context holds {context}: raise kv.max_context or shorten the prompt"
            )
        return tokens

    def _load(self) -> None:
        """The model's dense half, and what runs its experts: on the card where the plan says so."""
        plan, index, began = self.plan, self.pack.index, time.perf_counter()
        if plan.compute.runs_on == "cuda":
            from strata_recipes.engine.card import Card

            self._card = Card(plan, index, self._hooks.note, self._hooks.log)
        opened, device, dense = time.perf_counter(), torch.device("cpu"), None
        if self._card is not None:
            from strata_recipes.engine.card_parts import cuda_experts, dense_weights

            device, dense = self._card.device, dense_weights(plan, self.pack, self._card, self._opened)
            self._experts = cuda_experts(plan, index, self._card, lambda pair: pair in self.started.tiers.ram, self._opened)
            if plan.kv.resident_tokens is not None:
                self._far_cells = LockedCells(plan.ram.part(KV), self._card.locks)
                self._opened.callback(self._far_cells.close)
        else:
            self._experts = CpuExperts(index, plan.compute.arithmetic, plan.prefill.chunk)
        self._model = Qwen4Exp(self.pack, plan.compute.arithmetic, plan.kv.format, plan.kv.max_context, plan.compute.threads, device, dense)
        self.took = StartParts(opened - began, time.perf_counter() - opened)

    def _memory(self) -> AbstractContextManager[None]:
        return nullcontext() if self._card is None else self._card.memory()

    def _warming(self) -> WarmUp | None:
        if self._card is None:
            return None
        warm = WarmUp(*self._ready(), self.pack.index, self._far_cells is not None, self.plan.decode.draft_tokens + 1)
        self._opened.callback(warm.close)
        return warm

    def _compiled(self, warm: WarmUp | None) -> None:
        if warm is not None:
            waited = warm.wait()
            self.took = replace(self.took, kernels_s=waited)
            torch._C._cuda_clearCublasWorkspaces()  # the thread's: ours takes as much again
            torch.cuda.empty_cache()  # what the warm-up took is given back before the prompt asks for other sizes
            self._hooks.log(f"kernels are compiled after {warm.seconds:.3f} s, {waited:.3f} s of them after the copies")

    def _kept(self, start: int, stop: int) -> KeptStreams:
        g, card = self.pack.index.geometry, self._card
        if card is None or self.plan.prefill.residuals != "host":
            return StreamsInPlace()
        return StreamsInRam(start, stop - start, g.streams * g.hidden, card.device, card.locks)

    def _ready(self) -> tuple[Qwen4Exp, Experts]:
        if self._model is None or self._experts is None:
            raise RuntimeError("the session is closed")
        return self._model, self._experts

    def _new_state(self, model: Qwen4Exp) -> SequenceState:
        if self._kept_state is not None:
            self._kept_state.reset()
            return self._kept_state
        kv, host = self.plan.kv, host_bytes if self._far_cells is None else self._far_cells
        if self._far_cells is not None:
            self._far_cells.begin()  # of what a state took that could not be made whole
        state = model.new_state(kv.max_context, kv.resident_tokens, host)
        if state.num_bytes > self.plan.kv.num_bytes:
            raise DeviceError(f"a sequence takes {state.num_bytes} bytes, the plan counted {self.plan.kv.num_bytes}: plan again")
        if self._card is not None:
            self._kept_state = state
        return state
