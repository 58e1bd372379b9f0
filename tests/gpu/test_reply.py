"""Replies by captured graphs: the oracles' tokens, one set of bits wherever experts lie and however many rows go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels_numba.device import _loaded
from kernels_numba.gpu.dense_matvec import dense_kernel
from kernels_numba.gpu.dense_matvec_q8 import dense_q8_kernel
from kernels_numba.gpu.matvec import matvec_kernel
from kernels_numba.gpu.matvec_q8 import matvec_q8_kernel
from kernels_numba.gpu.select_blocks import select_kernel
from strata_recipes.engine.session import Session
from strata_recipes.engine.stepper import WalkStepper
from strata_recipes.engine.token_stepper import TokenStepper
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.plan import Plan
from tests.engine.test_layer_major import IDS
from tests.gpu.test_model import GREEDY, NAMES, Packs, on_card, packs
from tests.model.drive import distance
from tests.model.references import stored

pytestmark = pytest.mark.gpu
__all__ = ["packs"]
WHOLE: dict[str, Any] = dict(mode="full_arena", slots=30)
MODES: list[dict[str, Any]] = [
    dict(mode="full_arena", slots=0),
    dict(mode="resident", slots=40),
    dict(mode="budget", slots=5, ram_budget=20 * 16384),
    dict(mode="mapped", slots=0, file_io="buffered"),
    dict(mode="mapped", slots=11, file_io="direct"),
]
READ = 70


def following(pack: Pack, plan: Plan, ids: NDArray[Any], steps: Sequence[Sequence[int]], keep: int = 0) -> NDArray[np.float32]:
    """Logits of the tokens of all steps; of each step of several only `keep` stay, where that is stated, and the rest is read again."""
    found = []
    with Session(plan, pack) as session:
        session.prompt(ids)
        assert session._state is not None and session._replies is not None
        stepper = session._replies.stepper(session._state)
        assert isinstance(stepper, TokenStepper)
        for step in steps:
            found.append(stepper.step(step).copy())
            if keep and len(step) > 1:
                stepper.keep_only(keep)
                found.append(stepper.step(step[keep:]).copy())
    return np.concatenate(found)


@pytest.mark.parametrize(("name", "part"), GREEDY)
@pytest.mark.parametrize("kv", ["fp32", "fp16"])
def test_the_oracles_tokens(packs: Packs, name: str, part: str, kv: str) -> None:
    want, pack = stored(name, part), packs(name)
    count = len(want["tokens"])
    with Session(on_card(pack, len(want["ids"]), count, kv=kv, **WHOLE), pack) as session:
        for _ in range(2):  # the second reply replays the first one's graphs
            session.prompt(want["ids"])
            assert list(session.generate().tokens) == want["tokens"].tolist()


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_one_set_of_bits_wherever_experts_lie(packs: Packs, name: str, mode: dict[str, Any]) -> None:
    want, pack = stored(name, "greedy"), packs(name)
    steps = [[token] for token in want["tokens"][:12].tolist()]
    base = following(pack, on_card(pack, READ + 20, 40, **WHOLE), want["ids"], steps)
    assert following(pack, on_card(pack, READ + 20, 40, **mode), want["ids"], steps).tobytes() == base.tobytes()


@pytest.mark.parametrize("arithmetic", ["f32", "bf16", "q8"])
@pytest.mark.parametrize("name", NAMES)
def test_graphs_agree_with_the_halves_that_read_prompts(packs: Packs, name: str, arithmetic: str) -> None:
    """f32: two orders of sums. bf16: a reply's rows are not rounded, a prompt's are; q8: both round alike but for the attention."""
    want, pack = stored(name, "greedy"), packs(name)
    plan = on_card(pack, READ + 20, 40, arithmetic=arithmetic, **WHOLE)
    tokens = want["tokens"][:12].tolist()
    graphs = following(pack, plan, want["ids"], [[token] for token in tokens])
    with Session(plan, pack) as session:
        session.prompt(want["ids"])
        model, experts = session._ready()
        assert session._state is not None
        walk = WalkStepper(model, experts, session.started.tiers, session._state)
        plain = np.concatenate([walk.step([token]) for token in tokens])
    error = distance(graphs, plain)
    print(f"{name} {arithmetic}: {error:.2e}")
    assert error <= {"f32": 1e-4, "bf16": 2e-2, "q8": 4e-2}[arithmetic]


@pytest.mark.parametrize("mode", [WHOLE, MODES[3]], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_rows_together_have_the_bits_of_rows_alone(packs: Packs, name: str, mode: dict[str, Any]) -> None:
    pack = packs(name)
    tokens = (IDS[READ : READ + 19] % pack.index.geometry.vocab).tolist()
    ids = IDS[:READ] % pack.index.geometry.vocab

    def plan() -> Plan:
        return on_card(pack, READ + 20, 40, draft="suffix", draft_tokens=7, **mode)

    alone = following(pack, plan(), ids, [[token] for token in tokens])
    cut = [tokens[0:3], tokens[3:11], tokens[11:12], tokens[12:19]]
    assert following(pack, plan(), ids, cut).tobytes() == alone.tobytes()
    again = following(pack, plan(), ids, cut, keep=2)
    at = 0
    rows = []
    for step in cut:  # each step's rows, then those that were read again
        rows += [*range(at, at + len(step)), *(range(at + 2, at + len(step)) if len(step) > 1 else ())]
        at += len(step)
    assert again.tobytes() == alone[rows].tobytes()


@pytest.mark.parametrize("arithmetic", ["f32", "q8"])
def test_no_kernel_is_made_in_the_middle_of_a_reply(packs: Packs, arithmetic: str) -> None:
    """Those that depend on how many rows there are: with every number that a pass may have, nothing is left to be compiled."""
    makers: list[Any] = [dense_kernel, dense_q8_kernel, matvec_kernel, matvec_q8_kernel]
    for maker in makers:
        maker.cache_clear()
    pack = packs("tiny-mixed")
    plan = on_card(pack, READ + 20, 60, draft="suffix", draft_tokens=7, arithmetic=arithmetic, **MODES[3])
    with Session(plan, pack) as session:
        session.prompt(IDS[:READ] % pack.index.geometry.vocab)
        assert session._state is not None and session._replies is not None
        stepper = session._replies.stepper(session._state)
        made = [maker.cache_info().misses for maker in makers]
        for rows in range(1, 9):
            stepper.step([1] * rows)
            if rows > 1:
                stepper.keep_only(rows - 1)
    assert [maker.cache_info().misses for maker in makers] == made and sum(made) > 0


def test_no_kernel_is_made_for_a_long_context_in_the_middle_of_a_reply(packs: Packs) -> None:
    """A long list of blocks is ranked by more threads, in a kernel of their own."""
    select_kernel.cache_clear()
    pack = packs("storyteller")
    plan = on_card(pack, READ, 6000, **WHOLE)
    assert plan.kv.max_context > 8 * 128 * pack.index.geometry.index_block
    with Session(plan, pack) as session:
        session.prompt(IDS[:READ] % pack.index.geometry.vocab)
        assert session._state is not None and session._replies is not None
        stepper = session._replies.stepper(session._state)
        made, there = select_kernel.cache_info().misses, _loaded.cache_info().misses
        stepper.step([1])
    assert select_kernel.cache_info().misses == made > 0
    assert _loaded.cache_info().misses == there, "a kernel was compiled or loaded"
