"""Memory that an allocator did not get, and a card that was lost, told as one DeviceError whoever met it. Frees nothing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from strata_recipes.errors import DeviceError

_LOST = "CUDA error"  # begins what torch says of any call after the driver was reset or the PC slept
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
        if str(error).startswith(_LOST):
            words = " ".join(str(error).split("\n")[0].split())
            raise DeviceError(f"the card does not answer any more ({words}): start again, the process cannot go on with it") from error
        if not any(words in str(error) for words in _TORCH):
            raise
        raise _told(error) from error


def _told(error: BaseException) -> DeviceError:
    words = " ".join(str(error).split())[:200]
    return DeviceError(f"out of memory ({words or 'no more to be had'}): lower experts.ram_budget or kv.max_context")
