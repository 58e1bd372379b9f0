"""The Windows calls that direct reads need, as plain functions over ctypes. Imports anywhere; works on Windows.

Handles and addresses are plain integers. A refused call raises ApiError with Windows' own code and text.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_DWORD = ctypes.c_uint32  # c_ulong has 64 bits off Windows, and the layouts are tested there too
ERROR_HANDLE_EOF = 38
ERROR_OPERATION_ABORTED = 995
ERROR_IO_PENDING = 997

_GENERIC_READ = 0x8000_0000
_SHARE_ALL = 0x7  # read, write, delete: the file may be renamed or rewritten meanwhile, as on Linux; the reader notices
_OPEN_EXISTING = 3
_NO_BUFFERING_OVERLAPPED = 0x2000_0000 | 0x4000_0000
_COMMIT_RESERVE = 0x3000
_RELEASE = 0x8000
_PAGE_READWRITE = 4
_INVALID_HANDLE = ctypes.c_void_p(-1).value
_PLAIN_PATH = 240  # above it, CreateFileW wants the extended form


class ApiError(OSError):
    """A Windows call failed: `code` is GetLastError's, `text` the system's words for it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} (Windows error {code})")
        self.code = code
        self.text = text


class Overlapped(ctypes.Structure):
    """OVERLAPPED: where a read starts, and the event that tells its end."""

    _fields_ = [
        ("status", ctypes.c_void_p),
        ("transferred", ctypes.c_void_p),
        ("offset_low", _DWORD),
        ("offset_high", _DWORD),
        ("event", ctypes.c_void_p),
    ]


class Request:
    """One overlapped read under way. Its OVERLAPPED must stay where it is until `finish_read` has returned."""

    def __init__(self) -> None:
        self.block = Overlapped()
        self._event = _checked(_kernel32().CreateEventW(None, True, False, None))

    def aim(self, offset: int) -> Any:
        self.block = Overlapped(None, None, offset & 0xFFFF_FFFF, offset >> 32, self._event)
        return ctypes.byref(self.block)

    def close(self) -> None:
        if self._event:
            _kernel32().CloseHandle(self._event)
            self._event = 0


def open_direct(path: Path) -> int:
    """A handle for unbuffered, overlapped reads."""
    handle = _kernel32().CreateFileW(_for_windows(path), _GENERIC_READ, _SHARE_ALL, None, _OPEN_EXISTING, _NO_BUFFERING_OVERLAPPED, None)
    if handle == _INVALID_HANDLE:
        raise last_error()
    return int(handle)


def close(handle: int) -> None:
    _checked(_kernel32().CloseHandle(handle))


def file_size(handle: int) -> int:
    size = ctypes.c_int64()
    _checked(_kernel32().GetFileSizeEx(handle, ctypes.byref(size)))
    return size.value


def sector_bytes(path: Path) -> int:
    """The unit of unbuffered reads on the volume that holds the file."""
    root = ctypes.create_unicode_buffer(1024)
    _checked(_kernel32().GetVolumePathNameW(_for_windows(path), root, len(root)))
    cluster, sector, free, total = (_DWORD() for _ in range(4))
    _checked(_kernel32().GetDiskFreeSpaceW(root, *(ctypes.byref(n) for n in (cluster, sector, free, total))))
    return sector.value


def start_read(handle: int, request: Request, offset: int, address: int, num_bytes: int) -> None:
    """Asks for one read; the caller keeps request and buffer alive until `finish_read`."""
    if not _kernel32().ReadFile(handle, address, num_bytes, None, request.aim(offset)) and ctypes_error() != ERROR_IO_PENDING:
        raise last_error()


def finish_read(handle: int, request: Request) -> int:
    """Waits for the read; bytes read."""
    got = _DWORD()
    _checked(_kernel32().GetOverlappedResult(handle, ctypes.byref(request.block), ctypes.byref(got), True))
    return got.value


def cancel_read(handle: int, request: Request) -> None:
    """Asks a read to end early; `finish_read` must still be called. A read that is over already cannot be cancelled: no matter."""
    _kernel32().CancelIoEx(handle, ctypes.byref(request.block))


def read_at(number: int, buffers: Sequence[memoryview], offset: int) -> int:
    """As os.preadv with one buffer, for a file that os.open opened: bytes read, 0 at the end of the file."""
    import msvcrt  # Windows has it

    (view,) = buffers
    place = Overlapped(None, None, offset & 0xFFFF_FFFF, offset >> 32, None)
    got = _DWORD()
    handle = msvcrt.get_osfhandle(number)  # type: ignore[attr-defined]
    target = (ctypes.c_ubyte * len(view)).from_buffer(view)
    if _kernel32().ReadFile(handle, ctypes.addressof(target), len(view), ctypes.byref(got), ctypes.byref(place)):
        return got.value
    if ctypes_error() == ERROR_HANDLE_EOF:
        return 0
    raise OSError(0, ctypes_text(ctypes_error()), None, ctypes_error())  # Windows' own code becomes its errno


def allocate(num_bytes: int) -> int:
    """Address of zeroed, committed memory that starts on 64 KiB."""
    return _checked(_kernel32().VirtualAlloc(None, num_bytes, _COMMIT_RESERVE, _PAGE_READWRITE))


def release(address: int) -> None:
    _checked(_kernel32().VirtualFree(address, 0, _RELEASE))


def last_error() -> ApiError:
    code = ctypes_error()
    return ApiError(code, ctypes_text(code))


def ctypes_error() -> int:
    return int(ctypes.get_last_error())  # type: ignore[attr-defined]


def ctypes_text(code: int) -> str:
    return str(ctypes.FormatError(code)).strip().rstrip(".")  # type: ignore[attr-defined]


def extended_path(text: str) -> str:
    r"""The \\?\ form of an absolute Windows path, which has no limit of 260 characters; a short path stays as it is."""
    if len(text) < _PLAIN_PATH or text.startswith("\\\\?\\"):
        return text
    return "\\\\?\\UNC" + text[1:] if text.startswith("\\\\") else "\\\\?\\" + text


def _for_windows(path: Path) -> str:
    return extended_path(str(path.absolute()))


def _checked(result: Any) -> int:
    if not result:
        raise last_error()
    return int(result)


@functools.cache
def _kernel32() -> Any:
    """The library, with every call's types declared: an undeclared pointer is cut to 32 bits."""
    library = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]
    pointer, size, dword, boolean, text = ctypes.c_void_p, ctypes.c_size_t, _DWORD, ctypes.c_int, ctypes.c_wchar_p
    for name, result, arguments in (
        ("CreateFileW", pointer, (text, dword, dword, pointer, dword, dword, pointer)),
        ("CloseHandle", boolean, (pointer,)),
        ("CreateEventW", pointer, (pointer, boolean, boolean, text)),
        ("ReadFile", boolean, (pointer, pointer, dword, pointer, pointer)),
        ("GetOverlappedResult", boolean, (pointer, pointer, pointer, boolean)),
        ("CancelIoEx", boolean, (pointer, pointer)),
        ("GetFileSizeEx", boolean, (pointer, pointer)),
        ("GetVolumePathNameW", boolean, (text, pointer, dword)),
        ("GetDiskFreeSpaceW", boolean, (text, pointer, pointer, pointer, pointer)),
        ("VirtualAlloc", pointer, (pointer, size, dword, dword)),
        ("VirtualFree", boolean, (pointer, size, dword)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
