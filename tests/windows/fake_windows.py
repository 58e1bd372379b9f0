"""A stand-in for windows_api on any system: real bytes, Windows' rules about alignment and the file's end, scripted failures."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from strata_recipes.files.windows_api import ERROR_HANDLE_EOF, ApiError

SECTOR = 4096


class FakeRequest:
    def __init__(self, owner: FakeWindows) -> None:
        self.owner = owner
        self.asked: tuple[int, int, int] | None = None
        self.error: int | None = None
        owner.requests += 1

    def close(self) -> None:
        assert self.asked is None, "closed with a read under way"
        self.owner.requests -= 1


class FakeWindows:
    """Bytes move only when a read is finished or cancelled, so that a buffer used too early shows wrong bytes."""

    def __init__(self, sector: int = 512) -> None:
        self.sector = sector
        self.handles: set[int] = set()
        self.buffers: dict[int, mmap.mmap] = {}
        self.requests = 0
        self.started = 0
        self.under_way = self.under_way_peak = 0
        self.refuse_open: int | None = None
        self.refuse_start: dict[int, int] = {}  # number of the read -> Windows error
        self.refuse_finish: dict[int, int] = {}
        self.short: dict[int, int] = {}  # number of the read -> bytes that it gives
        self.reads: list[tuple[int, int]] = []
        self._number: dict[FakeRequest, int] = {}

    def Request(self) -> FakeRequest:
        return FakeRequest(self)

    def open_direct(self, path: Path) -> int:
        if self.refuse_open is not None:
            raise ApiError(self.refuse_open, "scripted")
        handle = os.open(path, os.O_RDONLY)
        self.handles.add(handle)
        return handle

    def close(self, handle: int) -> None:
        self.handles.remove(handle)
        os.close(handle)

    def file_size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def sector_bytes(self, path: Path) -> int:
        return self.sector

    def start_read(self, handle: int, request: FakeRequest, offset: int, address: int, num_bytes: int) -> None:
        assert handle in self.handles and request.asked is None
        number = self.started
        self.started += 1
        if (offset | address | num_bytes) % SECTOR or num_bytes == 0:
            raise ApiError(87, "The parameter is incorrect")
        if number in self.refuse_start:
            raise ApiError(self.refuse_start[number], "scripted")
        self._number[request] = number
        self.reads.append((offset, num_bytes))
        request.asked = (offset, address, num_bytes)
        self.under_way += 1
        self.under_way_peak = max(self.under_way_peak, self.under_way)

    def finish_read(self, handle: int, request: FakeRequest) -> int:
        if request.asked is None:
            return 0  # as a block that was never pending
        (offset, address, num_bytes), request.asked = request.asked, None
        self.under_way -= 1
        number = self._number[request]
        if number in self.refuse_finish:
            raise ApiError(self.refuse_finish[number], "scripted")
        data = os.pread(handle, min(num_bytes, self.short.get(number, num_bytes)), offset)
        if not data:
            raise ApiError(ERROR_HANDLE_EOF, "Reached the end of the file")
        ctypes.memmove(address, data, len(data))
        return len(data)

    def cancel_read(self, handle: int, request: FakeRequest) -> None:
        return None

    def read_at(self, number: int, buffers: Sequence[memoryview], offset: int) -> int:
        return os.preadv(number, buffers, offset)

    def allocate(self, num_bytes: int) -> int:
        memory = mmap.mmap(-1, num_bytes + 65_536)
        address = -(-ctypes.addressof(ctypes.c_char.from_buffer(memory)) // 65_536) * 65_536  # as VirtualAlloc gives it
        self.buffers[address] = memory
        return address

    def release(self, address: int) -> None:
        del self.buffers[address]
