"""Random configs over all groups through the whole program: the float64 oracle's tokens, budgets kept, and a replay of each.

A combination may be refused, in one sentence; the strategy below is such that most are not.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.end_to_end.conftest import Done, Strata
from tests.faults import oracle
from tests.faults.conftest import Packed

NEW = 5
EXAMPLES = 5


def _joined(parts: tuple[list[str], ...]) -> list[str]:
    return list(chain.from_iterable(parts))


def some(**choices: list[Any]) -> st.SearchStrategy[list[str]]:
    """Each key with one of its values, or left out; `a__b` stands for a.b."""
    parts = [st.sampled_from([[]] + [[f"{key.replace('__', '.')}={value}"] for value in values]) for key, values in choices.items()]
    return st.tuples(*parts).map(_joined)


LAPTOP = ["hardware=rtx3060_6gb", "hardware.headroom=0", "hardware.available=200MiB", "hardware.ram=1GiB", "hardware.gpu.reserve=0"]
HARDWARE = st.one_of(
    st.just(["hardware=cpu", "hardware.drive.direct=1GB/s", "hardware.drive.faults=0.5GB/s"]),
    st.sampled_from([1_700_000, 2_000_001, 4 << 20, 64 << 20]).map(lambda vram: [*LAPTOP, f"hardware.gpu.vram={vram}"]),
)
EXPERTS = st.one_of(
    st.sampled_from(["auto", "full_arena", "resident", "mapped"]).map(lambda mode: [f"experts={mode}"]),
    st.integers(0, 300_000).map(lambda size: ["experts=budget", f"experts.ram_budget={size}"]),
)
MORE_EXPERTS = some(experts__slots=[0, 1, 5], experts__file_io=["buffered", "direct"], experts__verify=["true"])
STARTUP = st.one_of(
    st.just(["startup=mapped"]),
    some(
        startup__merge=[1, "64KiB"], startup__fill_batch=[1, 5], startup__copy_batch=[1, 7], startup__threads=[1, 3], startup__depth=[1, 3]
    ).map(lambda more: ["startup=unbuffered", *more]),
)
LAYER_MAJOR = some(
    prefill__super_chunk=[8, 16, "whole"],
    prefill__residuals=["device", "host"],
    prefill__prefetch=["false"],
    prefill__direct=["true", "false"],
    prefill__margin=["1KiB"],
)
PREFILL = st.one_of(st.just(["prefill=chunked"]), LAYER_MAJOR.map(lambda more: ["prefill=layer_major", *more])).map(
    lambda words: [*words, "prefill.chunk=8"]
)
DECODE = st.sampled_from(
    [
        ["decode=greedy"],
        ["decode=greedy", "decode.draft=suffix"],
        ["decode=sample", "decode.top_k=1"],
        ["decode=sample", "decode.temperature=0", "decode.seed=3", "decode.draft=suffix", "decode.draft_tokens=7"],
    ]
)
OTHERS = some(kv__max_context=[64, 200], results__logits=["last", "all"], emulate__links=["throttle"])
CONFIGS = st.tuples(HARDWARE, EXPERTS, MORE_EXPERTS, STARTUP, PREFILL, DECODE, OTHERS).map(_joined)


def test_any_config(inside: Strata, tiny: Packed, mixed: Packed, prompt: NDArray[np.int64], ids_file: Path) -> None:
    wanted = {model.made.path: oracle.greedy(model.made.geometry, model.made.weights, prompt, NEW) for model in (tiny, mixed)}
    outcomes: list[int] = []

    @settings(max_examples=EXAMPLES)
    @given(words=CONFIGS, model=st.sampled_from([tiny, mixed]))
    def check(words: list[str], model: Packed) -> None:
        root = f"results{len(outcomes)}"
        whole = [*words, "model=gguf", f"model.source={model.made.path}", f"model.pack={model.folder}", "decode.stop_at_eos=false"]
        done = inside(*whole, f"workload.token_ids_file={ids_file}", f"decode.max_new_tokens={NEW}", root=root)
        outcomes.append(done.code)
        assert "Traceback" not in done.err and "Warning" not in done.err
        if done.code:
            assert done.code in (2, 4) and done.last_line.startswith("strata: "), done.err
            return
        assert done.json("reply.json")["tokens"] == wanted[model.made.path]
        _kept(done)
        again = inside("--config-dir", str(done.folder), "--config-name", "resolved", root=f"{root}-again")
        assert again.code == 0, again.err
        _same(done, again)

    check()
    assert outcomes.count(0) >= EXAMPLES // 2, outcomes


def _kept(done: Done) -> None:
    memory, plan = done.json("metrics.json")["memory"], done.json("plan.json")
    for name in ("vram", "ram"):
        assert memory[f"{name}_peak_bytes"] <= memory[f"{name}_budget_bytes"] == plan[name]["limit_bytes"]
    experts = done.json("metrics.json")["experts"]
    assert experts == {"vram_slots": plan["vram_slots"], "ram_blobs": plan["ram_blobs"], "file_blobs": plan["file_blobs"]}
    assert sum(experts.values()) >= 24


def _same(first: Done, second: Done) -> None:
    """The plan to the letter, and what it gave."""
    assert (first.folder / "plan.json").read_text() == (second.folder / "plan.json").read_text()
    assert first.json("identity.json") == second.json("identity.json")
    assert first.json("reply.json") == second.json("reply.json")


@pytest.fixture(autouse=True)
def no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on a PC with a card: a stated one is emulated."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
