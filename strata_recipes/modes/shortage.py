"""Memory that an allocator did not get, told as one DeviceError whoever asked: Python, mmap or torch. Frees nothing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from strata_recipes.errors import DeviceError

_TORCH = ("can't allocate memory", "out of memory")  # of its RuntimeErrors, for the CPU and for a card


@contextmanager
def memory_told() -> Iterator[None]:
    """Anything else goes on as it is."""
    try:
        yield
    except MemoryError as error:
        raise _told(error) from error
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise _told(error) from error
    except RuntimeError as error:
        if not any(words in str(error) for words in _TORCH):
            raise
        raise _told(error) from error


def _told(error: BaseException) -> DeviceError:
    words = " ".join(str(error).split())[:200]
    return DeviceError(f"out of memory ({words or 'no more to be had'}): lower experts.ram_budget or kv.max_context")
