"""Every reader gives the file's own bytes, whatever the range, buffer and shortness of reads; a wrong file is refused by name."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata_recipes.errors import FileError
from strata_recipes.files.aligned import AlignedBuffer
from strata_recipes.files.buffered import BufferedFile
from strata_recipes.files.mapped import MappedFile
from strata_recipes.files.source import Bytes, ExpertFile
from strata_recipes.files.unbuffered_linux import BOUNCE_BYTES, DirectFile

SIZE = 3 * BOUNCE_BYTES + 5 * 4096 + 777  # several bounce windows, and an end that is on no boundary
READERS: list[Callable[[Path, int], ExpertFile]] = [MappedFile, BufferedFile, DirectFile]


@pytest.fixture(scope="module")
def data() -> Bytes:
    return np.random.default_rng(7).integers(0, 256, SIZE, dtype=np.uint8)


@pytest.fixture(scope="module")
def path(data: Bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "experts.bin"
    path.write_bytes(data.tobytes())
    return path


def read(file: ExpertFile, offset: int, num_bytes: int) -> Bytes:
    out = np.full(num_bytes, 0xEE, np.uint8)
    file.read(offset, num_bytes, out)
    return out


def test_the_folder_of_these_tests_enforces_alignment(path: Path) -> None:
    """On tmpfs a badly aligned direct read succeeds, and the tests below would prove nothing."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with pytest.raises(OSError) as refused:
            os.preadv(handle, [bytearray(100)], 100)
        assert refused.value.errno == errno.EINVAL
    finally:
        os.close(handle)


EDGES = [0, 1, 511, 512, 4095, 4096, 4097, BOUNCE_BYTES - 1, BOUNCE_BYTES, BOUNCE_BYTES + 1, SIZE - 4096, SIZE - 777, SIZE - 1]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("offset", EDGES)
def test_bytes_are_the_files(reader: Callable[[Path, int], ExpertFile], offset: int, path: Path, data: Bytes) -> None:
    file = reader(path, SIZE)
    try:
        lengths = {0, 1, 512, 4096, BOUNCE_BYTES, BOUNCE_BYTES + 4097, SIZE - offset}
        for length in (n for n in lengths if offset + n <= SIZE):
            np.testing.assert_array_equal(read(file, offset, length), data[offset : offset + length])
    finally:
        file.close()


def test_an_aligned_buffer_is_read_into_without_a_bounce(path: Path, data: Bytes) -> None:
    sizes: list[int] = []

    def recording(handle: int, buffers: Sequence[memoryview], offset: int) -> int:
        sizes.append(len(buffers[0]))
        return os.preadv(handle, buffers, offset)

    file, buffer = DirectFile(path, SIZE, read_at=recording, alignment=4096), AlignedBuffer(2 * BOUNCE_BYTES, 4096)
    file.read(4096, 2 * BOUNCE_BYTES, buffer.bytes)
    np.testing.assert_array_equal(buffer.bytes, data[4096 : 4096 + 2 * BOUNCE_BYTES])
    assert sizes == [2 * BOUNCE_BYTES]  # one call, not two windows
    assert file.counters.bytes_read == 2 * BOUNCE_BYTES and file.counters.reads == 1
    file.close()


@settings(max_examples=40, deadline=None)
@given(offset=st.integers(0, SIZE), length=st.integers(0, SIZE), shift=st.integers(0, 600), seed=st.integers(0, 1000))
def test_short_and_interrupted_reads_are_continued(path: Path, data: Bytes, offset: int, length: int, shift: int, seed: int) -> None:
    length, rng = min(length, SIZE - offset), np.random.default_rng(seed)

    def short(handle: int, buffers: Sequence[memoryview], at: int) -> int:
        if rng.random() < 0.2:
            raise InterruptedError
        part = min(len(buffers[0]), 512 * int(rng.integers(1, 3000)))
        got = os.preadv(handle, [buffers[0][:part]], at)
        return got if got < 600 else got - int(rng.integers(0, 2)) * 37  # 37 bytes fewer: no whole unit

    whole = np.zeros(length + shift, np.uint8)
    for file in (DirectFile(path, SIZE, read_at=short), BufferedFile(path, SIZE, read_at=short)):
        file.read(offset, length, whole[shift:])
        np.testing.assert_array_equal(whole[shift:], data[offset : offset + length])
        file.close()


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP, errno.EIO])
@pytest.mark.parametrize("which", ["first", "second", "tail", "all"])
def test_a_refused_direct_read_is_read_once_through_the_cache_and_told_once(code: int, which: str, path: Path, data: Bytes) -> None:
    calls = [0]
    told: list[str] = []

    def refusing(handle: int, buffers: Sequence[memoryview], at: int) -> int:
        direct = bool(fcntl_flags(handle) & os.O_DIRECT)
        calls[0] += direct
        hit = {"first": calls[0] == 1, "second": calls[0] == 2, "tail": at + len(buffers[0]) > SIZE, "all": True}[which]
        if direct and hit:
            raise OSError(code, os.strerror(code))
        return os.preadv(handle, buffers, at)

    file = DirectFile(path, SIZE, read_at=refusing, note=told.append, alignment=4096)
    for offset, length in ((0, 4096), (8192, 100_000), (SIZE - 5000, 5000)):
        np.testing.assert_array_equal(read(file, offset, length), data[offset : offset + length])
    assert len(told) == 1 and str(path) in told[0] and os.strerror(code) in told[0]
    assert file.counters.buffered_reads == (3 if which == "all" else 1)
    file.close()


def fcntl_flags(handle: int) -> int:
    import fcntl

    return fcntl.fcntl(handle, fcntl.F_GETFL)


def test_no_direct_reads_at_all_is_told_and_reads_through_the_cache(path: Path, data: Bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    plain = os.open

    def refusing(name: Path, flags: int, *rest: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return plain(name, flags, *rest)

    monkeypatch.setattr(os, "open", refusing)
    file = DirectFile(path, SIZE, note=told.append)
    np.testing.assert_array_equal(read(file, 100, 9000), data[100:9100])
    assert len(told) == 1 and "Invalid argument" in told[0]
    assert file.counters.buffered_reads == 1
    file.close()


def test_one_read_never_asks_for_more_than_linux_gives(tmp_path: Path) -> None:
    path, size, asked = tmp_path / "sparse.bin", 5 << 30, []
    with open(path, "wb") as file:
        file.truncate(size)

    class Huge:  # stands for a buffer of 3 GiB without taking it
        def __init__(self, length: int) -> None:
            self.length = length

        def __len__(self) -> int:
            return self.length

        def __getitem__(self, part: slice) -> Huge:
            return Huge(len(range(*part.indices(self.length))))

    class HugeArray:
        data, size = Huge(3 << 30), 3 << 30

    def recording(handle: int, buffers: Sequence[memoryview], offset: int) -> int:
        asked.append((offset, len(buffers[0])))
        return len(buffers[0])

    direct = DirectFile(path, size, read_at=recording, alignment=4096)
    direct._fill(1 << 30, HugeArray())  # type: ignore[arg-type]
    limit = (2 << 30) - 4096
    assert asked == [(1 << 30, limit), ((1 << 30) + limit, (3 << 30) - limit)]
    direct.close()


@pytest.mark.parametrize("reader", [BufferedFile, DirectFile])
def test_a_drive_error_names_file_offset_length_and_errno(reader: type[BufferedFile], path: Path) -> None:
    def failing(handle: int, buffers: Sequence[memoryview], at: int) -> int:
        if at <= 137 * 4096 < at + len(buffers[0]):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.preadv(handle, buffers, at)

    file = reader(path, SIZE, read_at=failing)
    read(file, 0, 4096)
    with pytest.raises(FileError) as caught:
        read(file, 137 * 4096, 8192)
    for part in (str(path), "8192 bytes", f"offset {137 * 4096}", "errno 5", "Input/output error"):
        assert part in str(caught.value)
    assert file.counters.bytes_read == 4096 and file.counters.in_flight == 0  # the failed read counts for nothing
    file.close()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("change", [-1, -777, -SIZE, 4096])
def test_a_cut_or_padded_file_is_refused_at_open(reader: Callable[[Path, int], ExpertFile], change: int, path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(FileError, match=f"{path} has {SIZE} bytes, the pack's index wants {SIZE + change}"):
        reader(path, SIZE + change)
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("reader", READERS)
def test_a_folder_a_fifo_and_nothing_are_refused(reader: Callable[[Path, int], ExpertFile], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name in ("fifo", "folder", "missing"):
        with pytest.raises(FileError, match=name):
            reader(tmp_path / name, 10)
    assert stat.S_ISFIFO(os.stat(tmp_path / "fifo").st_mode)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: os.truncate(p, 8192), "has 8192 bytes, the pack's index wants 16384"),
        (lambda p: p.write_bytes(b"b" * 16384), "was written to"),
        (lambda p: (p.with_name("new").write_bytes(b"b" * 16384), os.replace(p.with_name("new"), p)), "was replaced"),
        (lambda p: p.unlink(), "can no longer be found"),
    ],
)
def test_a_file_changed_while_open_is_refused(
    reader: Callable[[Path, int], ExpertFile], change: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "experts.bin"
    path.write_bytes(b"a" * 16384)
    os.utime(path, ns=(10**18, 10**18))
    file = reader(path, 16384)
    file.check()
    change(path)
    with pytest.raises(FileError, match=said):
        file.check()
    file.close()


def test_a_file_cut_before_a_read_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "experts.bin"
    path.write_bytes(b"a" * 16384)
    file, buffered = MappedFile(path, 16384), BufferedFile(path, 16384)
    os.truncate(path, 0)
    for access in (lambda: file.view(8192, 10), lambda: read(file, 8192, 10), lambda: read(buffered, 8192, 10)):
        with pytest.raises(FileError, match="has 0 bytes"):
            access()
    file.close()
    buffered.close()


def test_reads_in_flight_are_counted(path: Path) -> None:
    together = threading.Barrier(4)

    def meeting(handle: int, buffers: Sequence[memoryview], at: int) -> int:
        together.wait(300)
        return os.preadv(handle, buffers, at)

    file = BufferedFile(path, SIZE, read_at=meeting)
    threads = [threading.Thread(target=read, args=(file, 4096 * i, 4096)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (file.counters.in_flight_peak, file.counters.in_flight) == (4, 0)
    assert (file.counters.reads, file.counters.bytes_read) == (4, 16384)
    file.close()


@pytest.mark.parametrize("reader", READERS)
def test_closing_leaves_no_handle_and_no_map(reader: Callable[[Path, int], ExpertFile], path: Path) -> None:
    before, file = set(os.listdir("/proc/self/fd")), reader(path, SIZE)
    read(file, 3, 5000)
    file.close()
    file.close()
    assert set(os.listdir("/proc/self/fd")) == before
    assert str(path) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("reader", READERS)
def test_a_range_outside_the_file_is_the_callers_mistake(reader: Callable[[Path, int], ExpertFile], path: Path) -> None:
    file = reader(path, SIZE)
    for offset, length in ((SIZE, 1), (-1, 1), (0, SIZE + 1)):
        with pytest.raises(ValueError, match="do not lie in"):
            read(file, offset, length)
    with pytest.raises(ValueError, match="a buffer of 3"):
        file.read(0, 4, np.zeros(3, np.uint8))
    file.close()


@pytest.mark.parametrize("alignment", [1 << 12, 1 << 14, 1 << 16, 1 << 21])
def test_aligned_memory(alignment: int) -> None:
    buffer = AlignedBuffer(12_345, alignment)
    assert buffer.bytes.ctypes.data % alignment == 0 and buffer.bytes.size == 12_345
    assert not buffer.bytes.any()
    buffer.bytes[:] = 7
    held = buffer.bytes
    buffer.close()
    assert (held == 7).all()  # a view that is still held keeps its memory
