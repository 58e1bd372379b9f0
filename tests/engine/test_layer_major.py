"""Layer-major order: the bits of chunked order at every edge and setting, each expert read once, and what it keeps as planned."""

from __future__ import annotations

import dataclasses
import errno
import functools
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from strata_recipes.engine.prefill import Cancelled, PrefillResult
from strata_recipes.engine.session import Session
from strata_recipes.errors import FileError
from strata_recipes.files.by_residency import ByResidency
from strata_recipes.files.mapped import MappedFile
from strata_recipes.files.pace import BURST_S
from strata_recipes.files.residency import cached_bytes, drop_cached
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.plan.budget import KEPT_ROWS, KEPT_STREAMS
from strata_recipes.plan.plan import Plan, Throttle
from tests.engine.plans import WITH_CARD, nothing_left, oracle, plan_for
from tests.engine.test_faults import PLAIN, patched

C, S, NEW = 8, 24, 4
EDGES = [1, 2, C - 1, C, C + 1, 2 * C, S - 1, S, S + 1, 2 * S + 5]
IDS = oracle("tiny-q2_0.mid")["ids"]


@dataclasses.dataclass(frozen=True)
class Read:
    """A prompt that was read and continued: all that must be the same bits."""

    logits: bytes
    state: tuple[bytes, ...]
    tokens: tuple[int, ...]
    result: PrefillResult


def state_bytes(state: SequenceState) -> tuple[bytes, ...]:
    """Every state of a sequence: cells up to its tokens, the rest is never read."""
    tokens, found = state.num_tokens, []
    for attention in state.attention.values():
        found += [
            attention.keys.first(tokens),
            attention.values.first(tokens),
            attention.blocks[: tokens // attention.pending.shape[0]],
        ]
        found.append(attention.pending[: tokens % attention.pending.shape[0]])
    for delta in state.delta.values():
        found += [delta.conv, delta.delta]
    for ngram in state.ngram.values():
        found += [ngram.history, ngram.conv]
    return tuple(part.cpu().numpy().tobytes() for part in found)


def read(plan: Plan, pack: Pack, ids: NDArray[Any]) -> Read:
    with Session(plan, pack, poison=True) as session:
        result = session.prompt(ids, logits="all")
        assert result.logits is not None and session._state is not None
        state = state_bytes(session._state)
        tokens = session.generate(max_new_tokens=NEW).tokens
        use = session.ledger.use()
    assert use.ram.peak_bytes <= use.ram.limit_bytes and use.vram.peak_bytes <= use.vram.limit_bytes
    assert nothing_left(pack)
    return Read(result.logits.tobytes(), state, tokens, result)


def same(found: Read, wanted: Read) -> bool:
    return (found.logits, found.state, found.tokens) == (wanted.logits, wanted.state, wanted.tokens)


def planned(pack: Pack, tokens: int, **changes: Any) -> Plan:
    base: dict[str, Any] = dict(mode="mapped", slots=11, chunk=C, new=NEW, order="layer_major", super_chunk=S)
    return plan_for(pack, prompt=tokens, **(base | changes))


@functools.cache
def in_chunks(folder: Path, tokens: int, **changes: Any) -> Read:
    """What chunked order gives, read once for all who compare with it."""
    with open_pack(folder) as pack:
        return read(planned(pack, tokens, order="chunked", super_chunk="auto", **changes), pack, IDS[:tokens])


@pytest.mark.parametrize("tokens", EDGES)
@pytest.mark.parametrize("model", ["tiny", "mixed"])
def test_every_edge_has_chunked_orders_bits(model: str, tokens: int, request: pytest.FixtureRequest) -> None:
    pack: Pack = request.getfixturevalue(model)
    ids = IDS[:tokens]
    wanted = in_chunks(pack.folder, tokens)
    for super_chunk in (S, 2 * C, "whole"):
        plan = planned(pack, tokens, super_chunk=super_chunk)
        assert plan.prefill.order == ("layer_major" if tokens > C else "chunked")
        assert same(read(plan, pack, ids), wanted)


SETTINGS: list[dict[str, Any]] = [
    dict(residuals="vram", machine=WITH_CARD),
    dict(residuals="host", machine=WITH_CARD),
    dict(dense="streamed", residuals="vram", machine=WITH_CARD),  # the CPU stands in: it has them where they are
    dict(mode="resident", slots=0),
    dict(mode="full_arena", slots=30),
    dict(mode="budget", slots=5, ram_budget=20 * 16384),
    dict(file_io="direct"),
    dict(file_io="direct", prefetch=False),
    dict(file_io="buffered", slots=0, verify=True),
    dict(file_io="buffered", prefetch=False),
    dict(file_io="buffered", direct=True),
    dict(file_io="buffered", direct=True, prefetch=False),
    dict(file_io="buffered", direct=True, direct_min=0.0),
    dict(file_io="buffered", direct=True, direct_min=1.0),
    dict(file_io="buffered", warm=True),
    dict(file_io="buffered", warm=True, prefetch=False),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_every_setting_has_chunked_orders_bits(setting: dict[str, Any], tiny: Pack) -> None:
    tokens = 2 * S + 5
    wanted = in_chunks(tiny.folder, tokens)
    chunked = planned(tiny, tokens, order="chunked", super_chunk="auto", **{**setting, "residuals": "auto", "dense": "auto"})
    assert same(read(chunked, tiny, IDS[:tokens]), wanted)
    for super_chunk in (S, "whole"):
        plan = planned(tiny, tokens, super_chunk=super_chunk, **setting)
        assert plan.prefill.residuals == setting.get("residuals", "host")
        assert same(read(plan, tiny, IDS[:tokens]), wanted)


@pytest.mark.parametrize("compute", ["bf16", "q8"])
def test_rounded_arithmetic_too(compute: str, mixed: Pack) -> None:
    def plan(order: str, super_chunk: Any) -> Plan:
        found = planned(mixed, 40, order=order, super_chunk=super_chunk)
        return dataclasses.replace(found, compute=dataclasses.replace(found.compute, arithmetic=compute))

    assert same(read(plan("layer_major", S), mixed, IDS[:40]), read(plan("chunked", "auto"), mixed, IDS[:40]))


@pytest.mark.parametrize("kv", ["fp16", "int8", "q4_0"])
def test_rounded_keys_and_values_too(kv: str, tiny: Pack) -> None:
    """A token reads all keys of its own span back from their cells, so no order sees more exact ones. A budget of 64 tokens: 130 choose."""
    wanted = read(planned(tiny, 130, order="chunked", super_chunk="auto", kv=kv), tiny, IDS[:130])
    for super_chunk in (S, "whole"):
        assert same(read(planned(tiny, 130, super_chunk=super_chunk, kv=kv), tiny, IDS[:130]), wanted)


READINGS = [dict(file_io="direct"), dict(file_io="buffered"), dict(file_io="buffered", direct=True)]
PASSES = [("whole", 1, prefetch, reading) for prefetch in (False, True) for reading in READINGS]
PASSES += [(S, 3, at % 2 == 0, reading) for at, reading in enumerate(READINGS)]
PASSES += [(2 * C, 4, at % 2 == 1, reading) for at, reading in enumerate(READINGS)]


@pytest.mark.parametrize(("super_chunk", "passes", "prefetch", "reading"), PASSES, ids=str)
def test_each_pass_reads_an_expert_once(super_chunk: int | str, passes: int, prefetch: bool, reading: dict[str, Any], tiny: Pack) -> None:
    figures = read(planned(tiny, 53, super_chunk=super_chunk, slots=0, prefetch=prefetch, **reading), tiny, IDS[:53]).result.figures
    chunked = in_chunks(tiny.folder, 53, slots=0).result.figures
    assert (figures.order, figures.super_chunks, chunked.super_chunks) == ("layer_major", passes, 7)
    assert figures.expert_bytes_touched == chunked.expert_bytes_touched
    assert figures.expert_bytes_read <= passes * figures.expert_bytes_one_pass
    assert figures.expert_bytes_read < chunked.expert_bytes_read
    if passes == 1:
        assert figures.expert_bytes_touched <= figures.expert_bytes_read <= figures.expert_bytes_one_pass
        assert prefetch or figures.expert_bytes_read == figures.expert_bytes_touched
    assert figures.expert_bytes_staged == 0  # without a card there is no ring


@pytest.mark.parametrize("machine", [None, WITH_CARD])
@pytest.mark.parametrize("residuals", ["host", "vram"])
def test_what_is_kept_is_what_the_plan_counts(residuals: str, machine: Any, tiny: Pack) -> None:
    if machine is None and residuals == "vram":
        pytest.skip("there is no VRAM without a card")
    more = {} if machine is None else {"machine": machine}
    plan = planned(tiny, 53, super_chunk="whole", residuals=residuals, **more)
    found = read(plan, tiny, IDS[:53])
    streams = sum(budget.part(KEPT_STREAMS) for budget in (plan.vram, plan.ram))
    rows = sum(budget.part(KEPT_ROWS) for budget in (plan.vram, plan.ram))
    g = tiny.index.geometry
    sorting = 53 * g.top_k * 60  # in passing: the choices and weights sorted, their order, its sort's own, places
    assert found.result.figures.kept_bytes == streams + rows - sorting
    assert streams == 53 * g.streams * g.hidden * 4
    assert (plan.vram.part(KEPT_STREAMS) > 0) == (residuals == "vram")
    assert (plan.vram.part(KEPT_ROWS) > 0) == (machine is not None)
    chunked = planned(tiny, 53, order="chunked", super_chunk="auto", **more)
    assert chunked.vram.part(KEPT_ROWS) == chunked.ram.part(KEPT_ROWS) == 0


def test_progress_and_cancel(tiny: Pack) -> None:
    done: list[tuple[int, int]] = []
    plan = planned(tiny, 53)
    wanted = read(plan, tiny, IDS[:53])
    with Session(plan, tiny, poison=True) as session:
        session.prompt(IDS[:53], on_chunk=lambda at, of: done.append((at, of)))
        assert done == [(min(at, 53), 53) for at in range(C, 53 + C, C)]  # every sub-chunk
        asked = iter(range(1000))
        with pytest.raises(Cancelled, match="stopped in layer 1, at token 8 of 53"):
            session.prompt(IDS[:53], cancelled=lambda: next(asked) == 5)
        again = session.prompt(IDS[:53], logits="all")
        assert again.logits is not None and again.logits.tobytes() == wanted.logits


def test_a_longer_prompt_than_planned_takes_more_passes(tiny: Pack) -> None:
    plan = planned(tiny, 20, super_chunk="whole")
    plan = dataclasses.replace(plan, kv=planned(tiny, 53).kv)
    assert plan.prefill.super_chunk == S
    found = read(plan, tiny, IDS[:53])
    assert found.result.figures.super_chunks == 3
    assert same(found, read(planned(tiny, 53, order="chunked", super_chunk="auto"), tiny, IDS[:53]))


def test_tiles_and_neighbours_do_not_change_a_rows_bits(tiny: Pack) -> None:
    """The grid alone fixes the bits: super-chunks of one chunk, of three, and all."""
    found = {read(planned(tiny, 70, super_chunk=size), tiny, IDS[:70]).logits for size in (C, 2 * C, 5 * C, "whole")}
    assert len(found) == 1 and np.isfinite(np.frombuffer(found.pop(), np.float32)).all()


@pytest.mark.parametrize("tokens", EDGES[1:])
@pytest.mark.parametrize("prefetch", [False, True])
def test_one_pass_of_the_file_for_any_prompt(tokens: int, prefetch: bool, tiny: Pack) -> None:
    plan = planned(tiny, tokens, super_chunk="whole" if tokens > C else "auto", file_io="direct", prefetch=prefetch)
    figures = read(plan, tiny, IDS[:tokens]).result.figures
    assert figures.expert_bytes_touched <= figures.expert_bytes_read <= figures.expert_bytes_one_pass
    assert figures.expert_bytes_one_pass == plan.file_blobs * 16384
    assert prefetch or figures.expert_bytes_read == figures.expert_bytes_touched


def test_what_passes_a_cards_ring_is_counted(tiny: Pack) -> None:
    plan = planned(tiny, 53, super_chunk="whole", machine=WITH_CARD, mode="budget", slots=30, ram_budget=20 * 13824)
    figures = read(plan, tiny, IDS[:53]).result.figures
    assert figures.ram_hits + figures.file_hits == figures.expert_bytes_staged // 13824 > 0


def test_what_the_page_cache_holds_is_copied_and_the_rest_read_past_it(tiny_folder: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(tiny_folder, tmp_path / "own"))
    with open_pack(own) as pack:
        drop_cached(pack.experts_path)
        with closing(MappedFile(pack.experts_path, pack.index.experts_file_bytes)) as file:
            file.read(pack.index.offset(0, 0), 2 * 24 * 16384, np.zeros(2 * 24 * 16384, np.uint8))  # layers 0 and 1
            file.drop(pack.index.offset(2, 0), 2 * 24 * 16384)  # which the kernel read ahead
        held = cached_bytes(pack.experts_path)
        assert held is not None and 2 * 24 * 16384 <= held < 4 * 24 * 16384
        plan = planned(pack, 53, slots=0, file_io="buffered", direct=True, super_chunk="whole", prefetch=False)
        with Session(plan, pack) as session:
            figures = session.prompt(IDS[:53]).figures
            assert cached_bytes(pack.experts_path) == held  # a prompt leaves the cache as it was
            tier = session.started.tiers.prompt
            assert tier is not None and isinstance(tier.file, ByResidency)
            copied = tier.file.cached_reads.bytes_read
            assert 0 < copied < figures.expert_bytes_read == tier.file.counters.bytes_read
            session.generate(max_new_tokens=2)
            after = cached_bytes(pack.experts_path)
            assert after is not None and after > held  # decode reads through it


def test_a_failed_prefetch_leaves_its_expert_as_never_asked_for(tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, failing = planned(tiny, 53, slots=0, file_io="direct", super_chunk=S), [False]
    wanted = read(plan, tiny, IDS[:53])

    def failing_read(handle: int, buffer: memoryview, offset: int) -> int:
        if failing[0] and offset >= tiny.index.offset(2, 3):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return PLAIN(handle, [buffer], offset)

    patched(monkeypatch, tiny, failing_read)
    with Session(plan, tiny, poison=True) as session:
        for failing[0] in (True, False, True, False):
            if failing[0]:
                with pytest.raises(FileError, match="errno 5"):
                    session.prompt(IDS[:53])
                continue
            found = session.prompt(IDS[:53], logits="all")
            assert found.logits is not None and found.logits.tobytes() == wanted.logits
            assert session.generate(max_new_tokens=NEW).tokens == wanted.tokens


@pytest.mark.usefixtures("links_own_clock")
@pytest.mark.parametrize("reading", READINGS, ids=str)
@pytest.mark.parametrize("order", ["chunked", "layer_major"])
def test_held_links_give_the_same_bits_later(order: str, reading: dict[str, Any], tiny_folder: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(tiny_folder, tmp_path / "own"))
    with open_pack(own) as pack:
        super_chunk = "whole" if order == "layer_major" else "auto"
        plan = planned(
            pack, 40, order=order, super_chunk=super_chunk, machine=WITH_CARD, mode="budget", slots=9, ram_budget=13824 * 9, **reading
        )
        wanted = read(plan, pack, IDS[:40])
        rate = 0.5e6
        held = dataclasses.replace(plan, throttle=Throttle(direct=rate, faults=rate, pcie=2 * rate))
        drop_cached(pack.experts_path)
        found = read(held, pack, IDS[:40])
        assert same(found, wanted)
        figures = found.result.figures
        assert figures.seconds >= figures.expert_bytes_touched / rate - BURST_S  # each byte came over the drive once at least
        assert figures.seconds >= figures.expert_bytes_staged / (2 * rate) - BURST_S
