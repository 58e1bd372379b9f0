"""One thread's unbuffered handle with a few overlapped reads under way. Knows no second way to read what Windows refuses."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from strata_recipes.files.source import Bytes
from strata_recipes.files.windows_api import ERROR_HANDLE_EOF, ApiError
from strata_recipes.files.windows_pieces import STAGE_BYTES, Piece

LANES = 4  # reads under way at once, a thread
_LIMIT = 1 << 31  # a length is a DWORD, and drivers read it as signed


class Api(Protocol):
    """The part of windows_api that direct reads use; a stand-in in tests."""

    def Request(self) -> Any: ...
    def open_direct(self, path: Path) -> int: ...
    def close(self, handle: int) -> None: ...
    def file_size(self, handle: int) -> int: ...
    def sector_bytes(self, path: Path) -> int: ...
    def start_read(self, handle: int, request: Any, offset: int, address: int, num_bytes: int) -> None: ...
    def finish_read(self, handle: int, request: Any) -> int: ...
    def cancel_read(self, handle: int, request: Any) -> None: ...
    def read_at(self, number: int, buffers: Sequence[memoryview], offset: int) -> int: ...
    def allocate(self, num_bytes: int) -> int: ...
    def release(self, address: int) -> None: ...


class Stopped(Exception):
    """A read ended before its range did: `done` bytes are good, `code` is Windows' error, or 0 for a short read."""

    def __init__(self, done: int, code: int, text: str) -> None:
        super().__init__(text)
        self.done = done
        self.code = code
        self.text = text


class Reader:
    """A handle, its lanes and their stage buffers. For one thread; `close` may come from another once no read is under way."""

    def __init__(self, api: Api, path: Path, alignment: int) -> None:
        self._api = api
        self._alignment = alignment
        self._lanes: list[_Lane] = []
        self._handle = api.open_direct(path)

    def file_size(self) -> int:
        return self._api.file_size(self._handle)

    def read(self, pieces: Sequence[Piece], out: Bytes) -> None:
        """Runs the pieces in order, the next ones under way while one is waited for. Stopped if one fails or is short."""
        assert out.flags.c_contiguous and out.flags.writeable
        under_way: deque[tuple[Piece, _Lane]] = deque()
        try:
            for index, piece in enumerate(pieces):
                if len(under_way) == LANES:
                    self._finish(*under_way[0], out)
                    under_way.popleft()
                lane = self._lane(index % LANES)
                under_way.append((piece, lane))  # before the start: an interrupt between the two must not lose it
                self._start(piece, lane, out)
            while under_way:
                self._finish(*under_way[0], out)
                under_way.popleft()
        finally:
            self._drain([lane for _, lane in under_way])

    def close(self) -> None:
        """Gives handle, events and stage buffers back; closing twice is nothing."""
        for lane in self._lanes:
            lane.close()
        self._lanes = []
        if self._handle:
            handle, self._handle = self._handle, 0
            self._api.close(handle)

    def _start(self, piece: Piece, lane: _Lane, out: Bytes) -> None:
        straight = piece.fits(out.ctypes.data, self._alignment)
        address = out.ctypes.data + piece.at if straight else lane.stage().ctypes.data
        check_aligned(piece.offset, piece.num_bytes, address, self._alignment)
        lane.staged = not straight
        try:
            self._api.start_read(self._handle, lane.request, piece.offset, address, piece.num_bytes)
        except ApiError as error:
            lane.refused = error  # told in its turn, after the reads before it

    def _finish(self, piece: Piece, lane: _Lane, out: Bytes) -> None:
        try:
            if lane.refused:
                raise lane.refused
            got = self._api.finish_read(self._handle, lane.request)
        except ApiError as error:
            raise Stopped(piece.at, error.code, error.text) from error
        finally:
            lane.refused = None
        good = min(piece.wanted, max(0, got - piece.skip))
        if lane.staged:
            np.copyto(out[piece.at : piece.at + good], lane.stage()[piece.skip : piece.skip + good])
        if good < piece.wanted:
            code = ERROR_HANDLE_EOF if got == 0 else 0
            raise Stopped(piece.at + good, code, f"a read of {piece.num_bytes} bytes at offset {piece.offset} gave {got}")

    def _drain(self, lanes: Sequence[_Lane]) -> None:
        """No read may still write into a buffer when this returns."""
        for lane in lanes:
            self._api.cancel_read(self._handle, lane.request)
        for lane in lanes:
            lane.refused = None
            try:
                self._api.finish_read(self._handle, lane.request)
            except ApiError:
                continue  # cancelled, or the failure that is being told

    def _lane(self, index: int) -> _Lane:
        if index == len(self._lanes):
            self._lanes.append(_Lane(self._api, max(STAGE_BYTES, self._alignment)))
        return self._lanes[index]


class _Lane:
    """One read's OVERLAPPED block, and the stage buffer that it gets when it first needs one."""

    def __init__(self, api: Api, stage_bytes: int) -> None:
        self.request = api.Request()
        self.staged = False
        self.refused: ApiError | None = None
        self._api = api
        self._stage_bytes = stage_bytes
        self._address = 0
        self._stage: Bytes = np.zeros(0, np.uint8)

    def stage(self) -> Bytes:
        if not self._address:
            self._address = self._api.allocate(self._stage_bytes)
            self._stage = np.frombuffer(memoryview((ctypes.c_ubyte * self._stage_bytes).from_address(self._address)), np.uint8)
        return self._stage

    def close(self) -> None:
        self.request.close()
        self._stage = np.zeros(0, np.uint8)
        if self._address:
            address, self._address = self._address, 0
            self._api.release(address)


def check_aligned(offset: int, num_bytes: int, address: int, alignment: int) -> None:
    """What Windows demands of an unbuffered read. Asserted here because not every system below us does (Wine does not)."""
    assert offset % alignment == 0, f"offset {offset} of a direct read is no multiple of {alignment}"
    assert num_bytes % alignment == 0, f"length {num_bytes} of a direct read is no multiple of {alignment}"
    assert address % alignment == 0, f"buffer address {address:#x} of a direct read is no multiple of {alignment}"
    assert 0 < num_bytes < _LIMIT, f"length {num_bytes} of a direct read is not between 1 and {_LIMIT - 1}"
