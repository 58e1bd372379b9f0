"""Both start-ups put the same bytes in the same places, whatever the batches; and what each step of the unbuffered one does on a fault."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata_recipes.config.choices import Strategy
from strata_recipes.config.schema import Startup
from strata_recipes.engine.session import Session
from strata_recipes.engine.startup import StartedTiers, start
from strata_recipes.engine.watching import Hooks, Progress
from strata_recipes.errors import FileError
from strata_recipes.files import unbuffered_linux
from strata_recipes.files.residency import cached_bytes, drop_cached
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.plan.plan import Plan
from strata_recipes.tiers.ledger import Ledger
from strata_recipes.tiers.verify import tier_checksums
from tests.engine.plans import nothing_left, oracle, plan_for, run

IDS = oracle("tiny-q2_0.greedy")["ids"]
PLAIN = os.preadv
BLOB = 13824


@pytest.fixture
def own(tiny_folder: Path, tmp_path: Path) -> Iterator[Pack]:
    """A copy of the pack on a drive (a file system in RAM accepts any direct read), to be spoilt."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(tmp_path)], capture_output=True, text=True, check=True).stdout.strip()
    assert kind != "tmpfs", "set TMPDIR to a folder on a drive"
    with open_pack(Path(shutil.copytree(tiny_folder, tmp_path / "own"))) as pack:
        yield pack


def unbuffered(**changes: Any) -> Startup:
    return Startup(Strategy.unbuffered, **changes)


@contextlib.contextmanager
def started(plan: Plan, pack: Pack, hooks: Hooks | None = None) -> Iterator[StartedTiers]:
    """The start alone, without a model; the ledger must end where it began."""
    ledger = Ledger(plan.vram.limit_bytes, plan.ram.limit_bytes)
    found = start(plan, pack, pack.order(), ledger, hooks or Hooks(), poison=True)
    try:
        assert ledger.use().ram.used_bytes == plan.experts.ram_bytes, "stage buffers are given back"
        yield found
    finally:
        found.tiers.close()
    assert ledger.use().ram.used_bytes == ledger.use().vram.used_bytes == 0


def held(found: StartedTiers) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    return tier_checksums(found.tiers.vram), tier_checksums(found.tiers.ram)


def expected(plan: Plan, pack: Pack) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """By the pack's own checksums."""
    order, first = pack.order(), plan.vram_slots if plan.experts.ram_start is None else plan.experts.ram_start
    pairs = (order[: plan.vram_slots], order[first : plan.vram_slots + plan.ram_blobs])
    slots, ram = ([(*pair, int(pack.checksums[pair])) for pair in sorted(part)] for part in pairs)
    return slots, ram


SETTINGS = dict(
    strategy=st.sampled_from([Strategy.mapped, Strategy.unbuffered, Strategy.auto]),
    mode=st.sampled_from(["full_arena", "resident", "budget", "mapped"]),
    slots=st.integers(0, 96),
    merge=st.sampled_from([1, 4096, 16384, 40000, 32 << 20]),
    fill_batch=st.integers(1, 100),
    copy_batch=st.integers(1, 100),
    threads=st.integers(1, 7),
    depth=st.integers(1, 4),
    file_io=st.sampled_from(["buffered", "direct"]),
)


def check_places(pack: Pack, mode: str, slots: int, file_io: str, strategy: Strategy, **asked: int) -> None:
    budget = 30 * pack.index.max_blob_bytes if mode == "budget" else None
    plan = plan_for(pack, mode=mode, slots=slots, file_io=file_io, ram_budget=budget, verify=True, startup=Startup(strategy, **asked))
    seen: list[Progress] = []
    with started(plan, pack, Hooks(progress=seen.append)) as found:
        assert held(found) == expected(plan, pack)
        assert found.figures.strategy == plan.startup.strategy and found.figures.fallback is None
        assert (found.figures.fill_bytes, found.figures.copy_bytes) == (plan.startup.fill_bytes, plan.startup.copy_bytes)
        for step, total in (("fill", plan.startup.fill_bytes), ("copy", plan.startup.copy_bytes)):
            done = [at.done_bytes for at in seen if at.step == step]
            assert done == sorted(done) and (done[-1] if done else 0) == total
    assert nothing_left(pack)


@settings(max_examples=60, deadline=None)
@given(**SETTINGS)
def test_every_setting_puts_the_same_bytes_in_the_same_places(tiny_folder: Path, **asked: Any) -> None:
    with open_pack(tiny_folder) as pack:
        check_places(pack, **asked)


@settings(max_examples=25, deadline=None)
@given(**SETTINGS)
def test_the_same_with_blobs_of_four_sizes(mixed_folder: Path, **asked: Any) -> None:
    with open_pack(mixed_folder) as pack:
        check_places(pack, **asked)


@settings(max_examples=25, deadline=None)
@given(**SETTINGS)
def test_the_same_with_a_hugging_face_checkpoint(hf_folder: Path, **asked: Any) -> None:
    with open_pack(hf_folder) as pack:
        check_places(pack, **asked)


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("folder", ["tiny_folder", "mixed_folder", "hf_folder"])
def test_tokens_logits_and_checksums_do_not_depend_on_the_start(folder: str, strategy: Strategy, request: pytest.FixtureRequest) -> None:
    with open_pack(request.getfixturevalue(folder)) as pack:
        plans = [
            plan_for(pack, mode="resident", slots=20, new=6, chunk=16, verify=True, startup=Startup(s)) for s in (strategy, Strategy.mapped)
        ]
        ids = IDS % pack.index.geometry.vocab
        first, second = (run(plan, pack, ids) for plan in plans)
        assert first[1] == second[1] and first[0].tobytes() == second[0].tobytes()
        with Session(plans[0], pack) as a, Session(plans[1], pack) as b:
            assert a.checksums() == b.checksums()


@pytest.mark.parametrize("alignment", [4096, 16384])
def test_a_drive_that_wants_more_than_a_blobs_alignment(alignment: int, tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    """13,824 bytes are no multiple of it: no read can go straight into its place."""
    monkeypatch.setattr(unbuffered_linux, "direct_alignment", lambda *_: alignment)
    plan = plan_for(tiny, mode="resident", slots=40, startup=unbuffered())
    with started(plan, tiny) as found:
        assert held(found) == expected(plan, tiny) and found.figures.fallback is None


def test_an_unbuffered_start_leaves_no_page_and_reads_each_byte_once(own: Pack) -> None:
    drop_cached(own.experts_path)
    lines: list[str] = []
    with started(plan_for(own, mode="resident", slots=40, startup=unbuffered()), own, Hooks(log=lines.append)) as found:
        cached, figures = cached_bytes(own.experts_path), found.figures
    first = 16384  # the blob that was read both ways, with what the system reads ahead of it
    assert cached is not None and cached <= 128 * 1024 + first
    assert figures.drive_bytes is None or 96 * BLOB <= figures.drive_bytes <= 96 * 16384 + 2 * (first + 128 * 1024)
    steps = ["mapping of experts.bin is closed", "6 direct handles are open", "fill: ", "copy: ", "is mapped again", "no expert is left"]
    assert [any(step in line for step in steps[i : i + 1]) for i, line in enumerate(lines)] == [True] * len(steps)


@pytest.mark.parametrize("strategy", [Strategy.mapped, Strategy.unbuffered])
def test_the_file_tier_is_what_it_was_before(strategy: Strategy, tiny: Pack) -> None:
    plan = plan_for(tiny, mode="mapped", slots=40, file_io="buffered", startup=Startup(strategy))
    lines: list[str] = []
    with started(plan, tiny, Hooks(log=lines.append, available_bytes=lambda: 5)) as found:
        assert found.recheck is not None and not found.recheck.holds
        assert [blob.size for _, blob in found.tiers.blobs(3, [20, 23])] == [BLOB, BLOB]
        assert found.tiers.take_counters().file_bytes == 2 * 16384
    assert any("experts.file_io=buffered would be the other now" in line and "5 bytes" in line for line in lines)


# faults


def is_direct(handle: int) -> bool:
    return bool(fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_DIRECT)


Read = Callable[[int, memoryview, int], int]


def patched(monkeypatch: pytest.MonkeyPatch, pack: Pack, read: Read) -> None:
    inode = os.stat(pack.experts_path).st_ino

    def preadv(handle: int, buffers: Sequence[memoryview], offset: int) -> int:
        return read(handle, buffers[0], offset) if os.fstat(handle).st_ino == inode else PLAIN(handle, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)


def fails(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def told_start(plan: Plan, pack: Pack) -> tuple[StartedTiers, list[str]]:
    """Starts, compares what lies where, and gives what was said."""
    said: list[str] = []
    with started(plan, pack, Hooks(note=said.append)) as found:
        assert held(found) == expected(plan, pack)
    assert nothing_left(pack)
    return found, said


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES, errno.EMFILE])
def test_a_refused_open_starts_mapped_and_says_why_once(code: int, tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, opened = os.open, []

    def refusing(path: Any, flags: int, *rest: Any) -> int:
        if flags & os.O_DIRECT and Path(path) == tiny.experts_path:
            opened.append(path)
            if len(opened) == 3:
                raise fails(code)
        return plain(path, flags, *rest)

    monkeypatch.setattr(os, "open", refusing)
    found, said = told_start(plan_for(tiny, mode="resident", slots=9, startup=unbuffered()), tiny)
    assert len(opened) == 3 and found.figures.strategy == "mapped"
    assert (
        len(said) == 1
        and os.strerror(code) in said[0]
        and found.figures.fallback is not None
        and os.strerror(code) in found.figures.fallback
    )


def test_a_first_blob_that_differs_starts_mapped(tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tiny.index.offset(*tiny.order()[0])

    def read(handle: int, buffer: memoryview, offset: int) -> int:
        got = PLAIN(handle, [buffer], offset)
        if is_direct(handle) and offset == first:
            buffer[700] ^= 1
        return got

    patched(monkeypatch, tiny, read)
    found, said = told_start(plan_for(tiny, mode="resident", slots=9, startup=unbuffered()), tiny)
    assert found.figures.strategy == "mapped" and found.figures.fallback is not None
    assert "differs from byte 700 on when read directly" in found.figures.fallback and len(said) == 1


@pytest.mark.parametrize(("which", "strategy"), [("first", "mapped"), ("second", "unbuffered"), ("last", "unbuffered")])
def test_einval_at_a_read(which: str, strategy: str, tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first: the direct path does not work here. Later: that range is read again through the cache, said once."""
    order = tiny.order()
    bad = tiny.index.offset(*{"first": order[0], "second": order[5], "last": (3, 23)}[which])

    def read(handle: int, buffer: memoryview, offset: int) -> int:
        if is_direct(handle) and offset <= bad < offset + len(buffer):
            raise fails(errno.EINVAL)
        return PLAIN(handle, [buffer], offset)

    patched(monkeypatch, tiny, read)
    found, said = told_start(plan_for(tiny, mode="resident", slots=9, startup=unbuffered()), tiny)
    assert found.figures.strategy == strategy and len(said) == 1 and "Invalid argument" in said[0]
    assert (found.figures.fallback is None) == (strategy == "unbuffered")


def test_short_and_interrupted_reads(tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)

    def read(handle: int, buffer: memoryview, offset: int) -> int:
        if rng.random() < 0.1:
            raise InterruptedError
        return PLAIN(handle, [buffer[: 512 * int(rng.integers(1, 40))]], offset)

    patched(monkeypatch, tiny, read)
    found, said = told_start(plan_for(tiny, mode="resident", slots=50, startup=unbuffered()), tiny)
    assert found.figures.strategy == "unbuffered" and said == []


@pytest.mark.parametrize("pair", [0, 7, 39])
def test_a_drive_error_in_the_fill_stops_and_names_all(pair: int, tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, expert = sorted(tiny.order()[:40], key=lambda at: tiny.index.offset(*at))[pair]
    bad = tiny.index.offset(layer, expert)

    filling = [False]

    def read(handle: int, buffer: memoryview, offset: int) -> int:
        if filling[0] and offset <= bad < offset + len(buffer):
            raise fails(errno.EIO)
        return PLAIN(handle, [buffer], offset)

    def log(line: str) -> None:
        filling[0] = filling[0] or "direct handles are open" in line  # the trial of the first blob passes

    patched(monkeypatch, tiny, read)
    plan = plan_for(tiny, mode="resident", slots=40, startup=unbuffered())
    with pytest.raises(FileError) as failed, Session(plan, tiny, hooks=Hooks(log=log)):
        raise AssertionError("started")
    for part in (
        f"pair {pair + 1} of 40 (layer {layer}, expert {expert})",
        str(tiny.experts_path),
        f"{BLOB} bytes",
        f"offset {bad}",
        "errno 5",
    ):
        assert part in str(failed.value), failed.value
    assert nothing_left(tiny)


@pytest.mark.parametrize("file_io", ["buffered", "direct"])
def test_a_drive_error_in_the_copy_leaves_those_experts_to_the_file(file_io: str, tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    lost, starting, said = {(0, 20), (2, 11), (3, 23)}, [True], []
    offsets = [tiny.index.offset(*pair) for pair in sorted(lost)]

    def read(handle: int, buffer: memoryview, offset: int) -> int:
        if starting[0] and any(offset <= bad < offset + len(buffer) for bad in offsets):
            raise fails(errno.EIO)
        return PLAIN(handle, [buffer], offset)

    plan = plan_for(tiny, mode="resident", slots=20, file_io=file_io, chunk=16, new=4, startup=unbuffered())
    wanted = run(plan, tiny, IDS)
    patched(monkeypatch, tiny, read)
    with Session(plan, tiny, hooks=Hooks(note=said.append), poison=True) as session:
        starting[0] = False
        tiers, figures = session.started.tiers, session.started.figures
        assert len(tiers.ram) == 76 - 3 and not any(pair in tiers.ram for pair in lost)
        assert figures.copy_bytes == 73 * BLOB and tiers.file_bytes() == 3 * 16384
        assert session.started.reading.startswith("3 experts of experts.bin")
        found = session.prompt(IDS, logits="all")
        assert found.logits is not None and found.logits.tobytes() == wanted[0].tobytes()
        assert session.generate().tokens == wanted[1]
    copied = [sentence for sentence in said if "of the RAM copy" in sentence]
    assert len(copied) == 1 and "3 of 76 experts" in copied[0] and f"offset {offsets[0]}" in copied[0] and "errno 5" in copied[0]
    assert nothing_left(tiny)


CHANGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: os.truncate(path, os.path.getsize(path) - 4096), "the pack's index wants 1572864"),
    (lambda path: (shutil.copy(path, path.with_name("new")), os.replace(path.with_name("new"), path)), "was replaced"),
    (lambda path: os.utime(path, ns=(1, 1)), "was written to"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
@pytest.mark.parametrize("when", ["closed", "opened", "fill", "copy"])
def test_a_file_changed_between_two_steps_is_refused(change: Callable[[Path], object], said: str, when: str, own: Pack) -> None:
    marks = {"closed": "mapping of", "opened": "direct handles are open", "fill": "fill: ", "copy": "copy: "}

    def log(line: str) -> None:
        if marks[when] in line and "mapped again" not in line:
            change(own.experts_path)

    plan = plan_for(own, mode="resident", slots=20, startup=unbuffered())
    with pytest.raises(FileError, match=f"experts.bin.*{said}"), Session(plan, own, hooks=Hooks(log=log)):
        raise AssertionError("started")
    assert nothing_left(own)


def test_verify_stops_at_a_changed_blob_in_the_copy(own: Pack) -> None:
    with open(own.experts_path, "r+b") as file:
        file.seek(own.index.offset(3, 22) + 5)
        file.write(bytes([255 - file.read(1)[0]]))
    plan = plan_for(own, mode="resident", slots=20, verify=True, startup=unbuffered())
    with pytest.raises(FileError, match=r"expert 22 of layer 3.*pack it again"), Session(plan, own):
        raise AssertionError("started")
    assert nothing_left(own)
