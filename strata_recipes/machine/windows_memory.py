"""The Windows calls that lock memory and trim the working set, over ctypes. Imports anywhere; works on Windows.

Addresses are plain integers. A refused call raises OSError with Windows' own code and text.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_COMMIT_RESERVE, _RELEASE, _PAGE_READWRITE = 0x3000, 0x8000, 4


def allocate(num_bytes: int) -> int:
    """Address of zeroed, committed memory that starts on 64 KiB."""
    return _checked(_kernel32().VirtualAlloc(None, num_bytes, _COMMIT_RESERVE, _PAGE_READWRITE))


def release(address: int) -> None:
    _checked(_kernel32().VirtualFree(address, 0, _RELEASE))


def lock(address: int, num_bytes: int) -> None:
    """Faults the range in and keeps it in RAM; `allow_locked` must have made room in the working set."""
    _checked(_kernel32().VirtualLock(address, num_bytes))


def unlock(address: int, num_bytes: int) -> None:
    """Lets a locked range go. On one that is not locked it fails (158) but takes it out of the working set all the same."""
    _checked(_kernel32().VirtualUnlock(address, num_bytes))


def allow_locked(num_bytes: int) -> None:
    """Raises the working set's bounds so that this many bytes more than now can be locked."""
    low, high = ctypes.c_size_t(), ctypes.c_size_t()
    process = _kernel32().GetCurrentProcess()
    _checked(_kernel32().GetProcessWorkingSetSize(process, ctypes.byref(low), ctypes.byref(high)))
    _checked(_kernel32().SetProcessWorkingSetSize(process, low.value + num_bytes, high.value + num_bytes))


def trim_working_set() -> None:
    """Takes every page that is not locked out of the working set; pages stay in standby until RAM runs short."""
    minus_one = ctypes.c_size_t(-1)
    _checked(_kernel32().SetProcessWorkingSetSize(_kernel32().GetCurrentProcess(), minus_one, minus_one))


def _checked(result: Any) -> int:
    if not result:
        raise ctypes.WinError(ctypes.get_last_error())  # type: ignore[attr-defined]
    return int(result)


@functools.cache
def _kernel32() -> Any:
    """The library, with every call's types declared: an undeclared pointer is cut to 32 bits."""
    library = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]
    pointer, size, dword, boolean = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_int
    for name, result, arguments in (
        ("VirtualAlloc", pointer, (pointer, size, dword, dword)),
        ("VirtualFree", boolean, (pointer, size, dword)),
        ("VirtualLock", boolean, (pointer, size)),
        ("VirtualUnlock", boolean, (pointer, size)),
        ("GetCurrentProcess", pointer, ()),
        ("GetProcessWorkingSetSize", boolean, (pointer, pointer, pointer)),
        ("SetProcessWorkingSetSize", boolean, (pointer, size, size)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
