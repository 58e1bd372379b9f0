"""The Windows direct reader over a stand-in for Windows: bytes at every edge, what Windows refuses, and nothing left open."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from strata_recipes.errors import FileError
from strata_recipes.files.unbuffered_windows import DirectFile
from strata_recipes.files.windows_pieces import PIECE_BYTES, STAGE_BYTES
from strata_recipes.files.windows_reader import LANES, check_aligned

if sys.platform == "win32":
    pytest.skip("the stand-in needs preadv; here the real calls are tested", allow_module_level=True)

from tests.windows.fake_windows import FakeWindows

A = 4096
SIZE = 2 * PIECE_BYTES + 3 * STAGE_BYTES + 1_234


@pytest.fixture(scope="module")
def content() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, SIZE, dtype=np.uint8)


@pytest.fixture()
def path(tmp_path: Path, content: np.ndarray) -> Path:
    place = tmp_path / "experts.bin"
    place.write_bytes(content.tobytes())
    return place


@pytest.fixture()
def system() -> Iterator[FakeWindows]:
    fake = FakeWindows()
    yield fake
    assert (fake.handles, fake.buffers, fake.requests, fake.under_way) == (set(), {}, 0, 0), "something was left open"


def buffer(num_bytes: int, shift: int = 0) -> np.ndarray:
    """A writable array whose first byte lies `shift` past an aligned address."""
    whole = np.full(num_bytes + 2 * A, 0xEE, np.uint8)
    start = -whole.ctypes.data % A + shift
    return whole[start : start + num_bytes]


@pytest.mark.parametrize("shift", [0, 1, 512, A - 1])
@pytest.mark.parametrize(
    ("offset", "num_bytes"),
    [
        (0, A), (0, 1), (1, 1), (A - 1, 2), (A, 3 * A), (A + 1, 3 * A), (5, PIECE_BYTES + 2 * A), (0, SIZE), (3, SIZE - 3),
        (SIZE - 1, 1), (SIZE - 1_234, 1_234), (SIZE - 1_234 - A, A), (SIZE, 0), (STAGE_BYTES - 1, 2 * STAGE_BYTES + 2),
    ],
)  # fmt: skip
def test_the_bytes_of_any_range(path: Path, content: np.ndarray, system: FakeWindows, offset: int, num_bytes: int, shift: int) -> None:
    file = DirectFile(path, SIZE, api=system)
    out = buffer(num_bytes + 3, shift)
    file.read(offset, num_bytes, out)
    np.testing.assert_array_equal(out[:num_bytes], content[offset : offset + num_bytes])
    assert np.all(out[num_bytes:] == 0xEE), "wrote past what was asked"
    assert (file.counters.bytes_read, file.counters.buffered_reads) == (num_bytes, 0)
    file.close()


def test_an_aligned_read_needs_no_stage_buffer_and_keeps_its_lanes_busy(path: Path, content: np.ndarray, system: FakeWindows) -> None:
    file = DirectFile(path, SIZE, api=system)
    out = buffer(2 * PIECE_BYTES)
    file.read(0, out.size, out)
    assert system.buffers == {} and system.reads == [(0, PIECE_BYTES), (PIECE_BYTES, PIECE_BYTES)]
    file.read(1, 6 * STAGE_BYTES, buffer(6 * STAGE_BYTES))
    assert system.under_way_peak == LANES == len(system.buffers)
    file.close()
    file.close()


def test_a_drive_of_large_sectors_gets_its_alignment(path: Path, content: np.ndarray) -> None:
    system = FakeWindows(sector=65_536)
    file = DirectFile(path, SIZE, api=system)
    out = buffer(10)
    file.read(70_000, 10, out)
    assert file.alignment == 65_536 and system.reads == [(65_536, 65_536)]
    np.testing.assert_array_equal(out, content[70_000:70_010])
    file.close()


def test_every_thread_has_its_own_handle(path: Path, content: np.ndarray, system: FakeWindows) -> None:
    file = DirectFile(path, SIZE, api=system)
    outs = [buffer(A) for _ in range(3)]
    threads = [threading.Thread(target=file.read, args=(i * A, A, out)) for i, out in enumerate(outs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(system.handles) == 4  # and the opener's
    np.testing.assert_array_equal(np.concatenate(outs), content[: 3 * A])
    file.close()


@pytest.mark.parametrize("code", [1, 50, 87, 1117])
@pytest.mark.parametrize("number", [0, 1, LANES, 7])
@pytest.mark.parametrize("when", ["refuse_start", "refuse_finish"])
def test_a_refused_read_goes_through_the_cache_once_told(
    path: Path, content: np.ndarray, system: FakeWindows, number: int, code: int, when: str
) -> None:
    told: list[str] = []
    file = DirectFile(path, SIZE, note=told.append, api=system)
    getattr(system, when)[number] = code
    for _ in range(2):
        out = buffer(8 * STAGE_BYTES)
        file.read(1, out.size, out)
        np.testing.assert_array_equal(out, content[1 : 1 + out.size])
    assert len(told) == 1 and f"(Windows error {code})" in told[0] and str(path) in told[0]
    assert str(1 + number * STAGE_BYTES - (number > 0)) in told[0], "the offset of the first byte that was not read"
    assert file.counters.buffered_reads == 1
    file.close()


@pytest.mark.parametrize("got", [0, 1, 511, A, A + 1])
def test_a_short_read_is_completed(path: Path, content: np.ndarray, system: FakeWindows, got: int) -> None:
    file = DirectFile(path, SIZE, api=system)
    out = buffer(6 * A)
    system.short[0] = got
    if got == 0:
        with pytest.raises(FileError, match=r"ended 0 bytes into a read of 24576 bytes at offset 8192"):
            file.read(2 * A, out.size, out)
    else:
        file.read(2 * A, out.size, out)
        np.testing.assert_array_equal(out, content[2 * A : 8 * A])
        assert file.counters.buffered_reads == 1
    file.close()


def test_an_error_names_file_offset_length_code_and_leaves_no_read_behind(path: Path, system: FakeWindows) -> None:
    file = DirectFile(path, SIZE, api=system)
    system.refuse_finish[2] = 483
    out = buffer(8 * STAGE_BYTES)
    with pytest.raises(FileError) as caught:
        file.read(1, out.size, out)
    first = 2 * STAGE_BYTES
    assert str(caught.value) == (
        f"{path}: reading {out.size - first + 1} bytes at offset {first} failed with scripted (Windows error 483): "
        "check the drive, then start again"
    )
    assert system.under_way == 0 and file.counters.bytes_read == 0
    file.close()


def test_a_cut_file_is_told_apart_from_a_bad_drive(path: Path, system: FakeWindows) -> None:
    file = DirectFile(path, SIZE, api=system)
    os.truncate(path, 3 * A + 5)
    out = buffer(4 * A)
    with pytest.raises(FileError, match=r"has 12293 bytes, the pack's index wants"):
        file.read(A, out.size, out)
    with pytest.raises(FileError, match=r"ended 0 bytes into a read of 4096 bytes at offset 16384"):
        file.read(4 * A, A, out)
    with pytest.raises(FileError, match=r"has 12293 bytes"):
        file.check()
    file.close()


def test_a_replaced_and_a_rewritten_file_are_noticed(path: Path, content: np.ndarray, system: FakeWindows, tmp_path: Path) -> None:
    file = DirectFile(path, SIZE, api=system)
    file.check()
    os.utime(path, ns=(1, 1))
    with pytest.raises(FileError, match="was written to while in use"):
        file.check()
    other = tmp_path / "other"
    other.write_bytes(content.tobytes())
    os.replace(other, path)
    with pytest.raises(FileError, match="was replaced while in use"):
        file.check()
    file.close()


def test_a_drive_without_direct_reads_is_read_through_the_cache(path: Path, content: np.ndarray, system: FakeWindows) -> None:
    told: list[str] = []
    system.refuse_open = 87
    file = DirectFile(path, SIZE, note=told.append, api=system)
    out = buffer(100)
    file.read(77, 100, out)
    np.testing.assert_array_equal(out, content[77:177])
    assert file.alignment == 0 and file.counters.buffered_reads == 1 and len(told) == 1
    file.close()


def test_a_file_that_cannot_be_opened_or_has_another_size_is_refused(path: Path, tmp_path: Path, system: FakeWindows) -> None:
    with pytest.raises(FileError, match=rf"has {SIZE} bytes, the pack's index wants {SIZE + 1}"):
        DirectFile(path, SIZE + 1, api=system)
    with pytest.raises(FileError, match="cannot be opened"):
        DirectFile(tmp_path / "none", 1, api=system)
    system.refuse_open = 32
    with pytest.raises(FileError, match=r"cannot be opened for direct reads: scripted \(Windows error 32\)"):
        DirectFile(path, SIZE, api=system)


def test_an_interrupt_leaves_no_read_behind(path: Path, system: FakeWindows, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DirectFile(path, SIZE, api=system)
    real, calls = system.finish_read, 0

    def interrupted(handle: int, request: object) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return real(handle, request)  # type: ignore[arg-type]

    monkeypatch.setattr(system, "finish_read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        file.read(1, 8 * STAGE_BYTES, buffer(8 * STAGE_BYTES))
    assert system.under_way == 0
    file.close()


@pytest.mark.parametrize(("offset", "num_bytes", "address"), [(1, A, A), (A, 1, A), (A, A, 1), (A, 0, A), (0, 1 << 31, A)])
def test_our_own_assertion_holds_alignment(offset: int, num_bytes: int, address: int) -> None:
    check_aligned(A, A, A, A)
    with pytest.raises(AssertionError, match="of a direct read is"):
        check_aligned(offset, num_bytes, address, A)
