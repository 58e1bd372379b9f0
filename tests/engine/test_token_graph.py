"""Graphs of a token, with a card's calls stood in for: what is run, captured and told, and that nothing outlives its last name."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from strata_recipes.engine import token_stepper
from strata_recipes.engine.token_graph import Captured, HalvesOfToken, WholeToken
from strata_recipes.engine.token_stepper import TokenStepper


class Graph:
    """Of a card: a broken capture cannot be ended."""

    broken = False
    replays = 0

    def capture_begin(self, **how: Any) -> None: ...

    def capture_end(self) -> None:
        if self.broken:
            raise RuntimeError("capturing stream has unjoined work")

    def replay(self) -> None:
        Graph.replays += 1


@pytest.fixture(autouse=True)
def no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Graph, "broken", False)
    monkeypatch.setattr(Graph, "replays", 0)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Event", object)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: STREAM)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())


STREAM: Any = SimpleNamespace(cuda_stream=7, device=torch.device("cpu"))


def test_work_is_queued_until_it_is_captured() -> None:
    """A pass that failed before its end leaves parts that ran and were not captured: the next pass runs them, not nothing."""
    ran: list[int] = []
    part = Captured(STREAM)
    part.capture(ran.append)
    part.run(ran.append)
    part.run(ran.append)
    assert (ran, Graph.replays) == ([7, 7], 0)
    part.capture(ran.append)
    part.run(ran.append)
    part.capture(ran.append)
    assert (ran, Graph.replays) == ([7, 7, 7], 1)


@pytest.mark.parametrize("broken", [False, True])
def test_what_breaks_a_capture_is_told(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    part = Captured(STREAM)
    part.run(ran.append)
    monkeypatch.setattr(Graph, "broken", broken)

    def interrupted(stream: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        part.capture(interrupted)
    part.run(ran.append)
    assert (ran, Graph.replays) == ([7, 7], 0)


@pytest.mark.parametrize("whole", [True, False])
def test_memory_goes_with_the_last_name(whole: bool) -> None:
    """Dense weights that move need the room of those that graphs held: a cycle would keep them until garbage is collected."""
    layers: Any = type("Layers", (), {})()
    seen = weakref.ref(layers)
    inputs: Any = None
    gc.disable()
    try:
        graph = WholeToken(layers, None, inputs, 2, STREAM) if whole else HalvesOfToken(layers, None, inputs, inputs, 2, STREAM)
        del layers
        assert seen() is not None
        del graph
        assert seen() is None
    finally:
        gc.enable()


def test_choices_that_are_read_again_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the CPU: what adapts hears of a step, not of the rows of it that stay."""
    counted: list[Any] = []
    read: list[list[int]] = []
    stepper: Any = object.__new__(TokenStepper)
    stepper._adapt = SimpleNamespace(count=counted.append)
    stepper._state, stepper._stream = SimpleNamespace(num_tokens=3), STREAM
    stepper._before = SimpleNamespace(take=lambda: None, restore=lambda num_tokens: None)

    def reads(tokens: list[int]) -> Any:
        read.append(tokens)
        return SimpleNamespace(routed=np.zeros((1, len(tokens), 1), np.int32), logits=None)

    monkeypatch.setattr(stepper, "_read", reads)
    stepper.step([5, 6, 7])
    stepper.keep_only(2)
    assert read == [[5, 6, 7], [5, 6]]
    assert [routed.shape for routed in counted] == [(1, 3, 1)]


def test_a_pass_that_fails_leaves_nothing_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream beside may still gather into the memory of the next prompt's ring: the one that would have joined it cannot tell."""
    waited: list[Any] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)

    def interrupted() -> None:
        raise KeyboardInterrupt

    stepper: Any = object.__new__(TokenStepper)
    stepper._state, stepper._stream = SimpleNamespace(num_tokens=3), SimpleNamespace(synchronize=lambda: None)
    stepper._model, stepper._tiers = SimpleNamespace(device="card"), SimpleNamespace(take_moves=lambda: ())
    stepper._passes = {1: SimpleNamespace(run=interrupted, inputs=SimpleNamespace(put=lambda tokens, state: None))}
    with pytest.raises(KeyboardInterrupt):
        stepper._read([5])
    assert waited == ["card"]


def test_a_pass_begins_once_all_that_it_reads_is_zeroed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is zeroed on torch's current stream, which a reply's own does not wait for by itself."""
    done: list[str] = []

    def makes(name: str) -> Any:
        return lambda *words: done.append(name)

    for name in ("ReplyBuffers", "TokenLayers", "Gathered", "TokenInputs", "_Pass"):
        monkeypatch.setattr(token_stepper, name, makes(name))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "torch's")
    stepper: Any = object.__new__(TokenStepper)
    stepper._stream = SimpleNamespace(wait_stream=lambda other: done.append(f"waits for {other}"))
    stepper._model, stepper._gather = SimpleNamespace(geometry=SimpleNamespace(top_k=1), device="card"), torch.zeros(1, 16)
    stepper._index, stepper._table = SimpleNamespace(layers=()), SimpleNamespace(on_card=None, near=None)
    stepper._ops = stepper._tiers = stepper._stage = stepper._room = stepper._ends = None
    stepper._state, stepper._passes = SimpleNamespace(max_context=8), {}
    stepper._make(1)
    assert done[-2:] == ["_Pass", "waits for torch's"]
