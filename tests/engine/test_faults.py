"""What a drive can do while the engine reads: late, short, refused and failed reads; a file cut under a mapping."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from strata_recipes.config.choices import Strategy
from strata_recipes.config.schema import Startup
from strata_recipes.engine.session import Session
from strata_recipes.engine.watching import Hooks
from strata_recipes.errors import FileError
from strata_recipes.pack.reader import Pack
from tests.engine.plans import nothing_left, oracle, plan_for, run

IDS = oracle("tiny-q2_0.greedy")["ids"]
STRIDE = 16384
PLAIN = os.preadv


def patched(monkeypatch: pytest.MonkeyPatch, pack: Pack, read: Callable[[int, memoryview, int], int]) -> None:
    """Puts `read` in the place of direct reads of the experts."""
    inode = os.stat(pack.experts_path).st_ino

    def preadv(handle: int, buffers: Sequence[memoryview], offset: int) -> int:
        return read(handle, buffers[0], offset) if os.fstat(handle).st_ino == inode else PLAIN(handle, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)


def is_direct(handle: int) -> bool:
    return bool(fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_DIRECT)


@pytest.mark.parametrize("kind", ["late", "short", "refused"])
def test_the_same_bits_from_a_drive_that_is_late_short_or_refuses(kind: str, tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    startup = Startup(Strategy.mapped)  # the file tier alone meets the drive; an unbuffered start's faults are in test_startup
    plan = plan_for(tiny, mode="mapped", slots=11, file_io="direct", chunk=16, new=4, startup=startup)
    wanted, rng = run(plan, tiny, IDS), np.random.default_rng(5)
    said: list[str] = []

    def read(handle: int, buffer: memoryview, offset: int) -> int:
        if kind == "late":
            time.sleep(rng.random() * 0.003)
        if kind == "refused" and is_direct(handle) and rng.random() < 0.3:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return PLAIN(handle, [buffer[: 512 * int(rng.integers(1, 40))] if kind == "short" else buffer], offset)

    patched(monkeypatch, tiny, read)
    with Session(plan, tiny, hooks=Hooks(note=said.append), poison=True) as session:
        read_back = session.prompt(IDS, logits="all")
        assert read_back.logits is not None and read_back.logits.tobytes() == wanted[0].tobytes()
        assert session.generate().tokens == wanted[1]
    assert len(said) == (kind == "refused")
    assert nothing_left(tiny)


@pytest.mark.parametrize("expert", [0, 13, 23])
def test_a_drive_error_names_file_offset_length_and_errno(expert: int, tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the cache as well, or the direct path's own error would be read around."""
    bad = tiny.index.offset(2, expert)

    def read(handle: int, buffer: memoryview, offset: int) -> int:
        if offset <= bad < offset + len(buffer):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return PLAIN(handle, [buffer], offset)

    patched(monkeypatch, tiny, read)
    with pytest.raises(FileError) as failed, Session(plan_for(tiny, mode="mapped", file_io="direct"), tiny) as session:
        for ids in (IDS, IDS[::-1], np.arange(300) % 512):
            session.prompt(ids)
    for part in (str(tiny.experts_path), f"{STRIDE} bytes", f"offset {bad}", "errno 5", "Input/output error"):
        assert part in str(failed.value)
    assert nothing_left(tiny)


def test_a_prompt_after_a_failed_one_is_right(tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed read leaves its expert as never asked for."""
    plan, failing = plan_for(tiny, mode="mapped", file_io="direct", chunk=16, new=4), [False]
    wanted = run(plan, tiny, IDS)

    def read(handle: int, buffer: memoryview, offset: int) -> int:
        if failing[0] and offset >= tiny.index.offset(3, 0):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return PLAIN(handle, [buffer], offset)

    patched(monkeypatch, tiny, read)
    with Session(plan, tiny, poison=True) as session:
        for failing[0] in (True, False, True, False):
            if failing[0]:
                with pytest.raises(FileError, match="errno 5"):
                    session.prompt(IDS)
                continue
            found = session.prompt(IDS, logits="all")
            assert found.logits is not None and found.logits.tobytes() == wanted[0].tobytes()
            assert session.generate().tokens == wanted[1]


def test_a_file_cut_under_the_mapping_in_a_prompt_ends_with_exit_code_3(tiny_folder: Path, tmp_path: Path) -> None:
    """The cut comes after the size was checked and before the kernel reads."""
    body = """
import os, shutil, sys
from pathlib import Path
from strata_recipes.engine.session import Session
from strata_recipes.files.mapped import MappedFile
from strata_recipes.pack.reader import open_pack
from tests.engine.plans import oracle, plan_for
folder = shutil.copytree(sys.argv[1], sys.argv[2])
plain = MappedFile.view
def view(self, offset, num_bytes):
    found = plain(self, offset, num_bytes)
    if offset > 4 * 16384:
        os.truncate(self.path, 0)
    return found
with open_pack(Path(folder)) as pack, Session(plan_for(pack, mode="mapped", file_io="buffered"), pack) as session:
    MappedFile.view = view
    session.prompt(oracle("tiny-q2_0.greedy")["ids"])
"""
    command = [sys.executable, "-c", body, str(tiny_folder), str(tmp_path / "own")]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300)
    assert done.returncode == 3, done.stderr
    assert "experts.bin: a read of its mapping failed" in done.stderr.splitlines()[-1]
