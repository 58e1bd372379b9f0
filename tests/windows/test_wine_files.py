"""The real Windows calls: direct reads equal to buffered ones, errors in Windows' words. Run by run.sh under Wine."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows", allow_module_level=True)

from strata_recipes.errors import FileError
from strata_recipes.files import windows_api
from strata_recipes.files.buffered import BufferedFile
from strata_recipes.files.unbuffered_windows import DirectFile
from strata_recipes.files.windows_api import ApiError
from strata_recipes.files.windows_pieces import PIECE_BYTES, STAGE_BYTES

A = 4096
SIZE = 2 * PIECE_BYTES + STAGE_BYTES + 777


@pytest.fixture(scope="module")
def content() -> np.ndarray:
    return np.random.default_rng(11).integers(0, 256, SIZE, dtype=np.uint8)


@pytest.fixture(scope="module", params=["experts.bin", "模型 données/Ünï (1)/expertén.bin", "long"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, content: np.ndarray) -> Path:
    name = "/".join(["x" * 60] * 5) + "/experts.bin" if request.param == "long" else request.param
    place = tmp_path_factory.mktemp("pack") / name
    text = "\\\\?\\" + str(place.parent)
    Path(text).mkdir(parents=True, exist_ok=True)
    Path(text, place.name).write_bytes(content.tobytes())
    return Path(text, place.name) if request.param == "long" else place


@pytest.fixture()
def pages() -> Iterator[np.ndarray]:
    """VirtualAlloc'd memory as the RAM tier would have it."""
    size = 3 * PIECE_BYTES
    address = windows_api.allocate(size)
    assert address % 65_536 == 0
    yield np.frombuffer(memoryview((ctypes.c_ubyte * size).from_address(address)), np.uint8)
    windows_api.release(address)


@pytest.mark.parametrize("shift", [0, 1, A - 1])
@pytest.mark.parametrize(
    ("offset", "num_bytes"),
    [(0, A), (0, 1), (A - 1, 2), (A + 1, 3 * A), (5, PIECE_BYTES + 2 * A), (0, SIZE), (SIZE - 1, 1), (SIZE - 777, 777), (SIZE, 0)],
)
def test_direct_reads_equal_buffered_ones(
    path: Path, content: np.ndarray, pages: np.ndarray, offset: int, num_bytes: int, shift: int
) -> None:
    out, expected = pages[shift : shift + num_bytes + 5], np.zeros(num_bytes, np.uint8)
    pages[:] = 0xEE
    file, buffered = DirectFile(path, SIZE), BufferedFile(path, SIZE, read_at=windows_api.read_at)
    file.read(offset, num_bytes, out)
    buffered.read(offset, num_bytes, expected)
    np.testing.assert_array_equal(out[:num_bytes], expected)
    np.testing.assert_array_equal(expected, content[offset : offset + num_bytes])
    assert np.all(out[num_bytes:] == 0xEE)
    assert (file.alignment >= A, file.counters.buffered_reads) == (True, 0)
    file.check()
    file.close()
    file.close()
    buffered.close()


def test_a_read_past_the_end_says_so(tmp_path: Path, content: np.ndarray, pages: np.ndarray) -> None:
    place = tmp_path / "cut.bin"
    place.write_bytes(content[: 8 * A].tobytes())
    file = DirectFile(place, 8 * A)
    with open(place, "r+b") as writer:
        writer.truncate(3 * A)
    with pytest.raises(FileError, match=r"cut\.bin.*ended 0 bytes into a read of 4096 bytes at offset 16384"):
        file.read(4 * A, A, pages)
    with pytest.raises(FileError, match=r"has 12288 bytes, the pack's index wants 32768"):
        file.read(2 * A, 2 * A, pages)
    file.close()


def test_windows_own_errors_have_code_and_text(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match=r"not found.* \(Windows error 2\)"):
        windows_api.open_direct(tmp_path / "nothing.bin")
    with pytest.raises(FileError, match=r"nothing\.bin cannot be opened"):
        DirectFile(tmp_path / "nothing.bin", 1)
    with pytest.raises(FileError, match=r"directory|cannot be opened"):
        DirectFile(tmp_path, 1)
    with pytest.raises(ApiError) as caught:
        windows_api.close(0x1234567)
    assert caught.value.code == 6


def test_a_file_held_by_another_program_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "held.bin"
    place.write_bytes(b"x" * A)
    library = ctypes.WinDLL("kernel32", use_last_error=True)
    library.CreateFileW.restype = ctypes.c_void_p
    library.CreateFileW.argtypes = [ctypes.c_wchar_p, *[ctypes.c_uint32] * 2, ctypes.c_void_p, *[ctypes.c_uint32] * 2, ctypes.c_void_p]
    handle = library.CreateFileW(str(place), 0xC000_0000, 0, None, 3, 0, None)  # shares nothing
    with pytest.raises(FileError, match=r"held\.bin"):
        DirectFile(place, A)
    windows_api.close(handle)
    DirectFile(place, A).close()


def test_a_cancelled_read_can_be_waited_for(path: Path, pages: np.ndarray) -> None:
    handle, request = windows_api.open_direct(path), windows_api.Request()
    windows_api.start_read(handle, request, 0, pages.ctypes.data, PIECE_BYTES)
    windows_api.cancel_read(handle, request)
    try:
        assert windows_api.finish_read(handle, request) == PIECE_BYTES
    except ApiError as error:
        assert error.code == windows_api.ERROR_OPERATION_ABORTED
    request.close()
    windows_api.close(handle)


def test_the_unit_of_direct_reads_is_a_power_of_two(path: Path) -> None:
    sector = windows_api.sector_bytes(path)
    assert sector >= 512 and sector & (sector - 1) == 0
