"""What can become of a file's bytes, as hypothesis strategies, and what a reader may answer: one sentence, soon, in little memory."""

from __future__ import annotations

import signal
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from hypothesis import strategies as st

from strata_recipes.errors import StrataError

MOST_BYTES = 64 << 20
MOST_SECONDS, MOST_WAIT_SECONDS = 20, 600  # of processor time, and at all: a healthy read takes milliseconds
_NUMBERS = [0, 1, 2**31 - 1, 2**32 - 1, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
_WORDS = [b"null", b"1e999", b"-1", b"[[[[", b'""', b"NaN", b"99999999", b"true", b"\\u0000", b"&a", b"*a", b"${x}", b"? ", b"\n- ", b": "]
_DATA = st.one_of(
    st.binary(min_size=1, max_size=8), st.sampled_from(_NUMBERS).map(lambda n: n.to_bytes(8, "little")), st.sampled_from(_WORDS)
)


@dataclass(frozen=True)
class Edit:
    """One change at a share of the span that is edited."""

    kind: str  # put: over what is there; add: before it; drop or twice: as many bytes as `data` has, times 16
    position: float
    data: bytes

    def applied(self, to: bytes, span: int) -> bytes:
        at, run = int(self.position * min(span, len(to))), len(self.data) * 16
        if self.kind == "put":
            return to[:at] + self.data + to[at + len(self.data) :]
        if self.kind == "drop":
            return to[:at] + to[at + run :]
        return to[:at] + (self.data if self.kind == "add" else to[at : at + run]) + to[at:]


EDITS = st.lists(st.builds(Edit, st.sampled_from(["put", "put", "add", "drop", "twice"]), st.floats(0, 1), _DATA), min_size=1, max_size=3)
CUT = st.one_of(st.none(), st.none(), st.floats(0, 1))


def damaged(data: bytes, edits: Sequence[Edit], cut: float | None, span: int) -> bytes:
    """`data` with all edits in its first `span` bytes, then cut to a share of its length."""
    for edit in edits:
        data = edit.applied(data, span)
    return data if cut is None else data[: int(cut * min(2 * span, len(data)))]


def refused_or_fine(path: Path, data: bytes, use: Callable[[], object]) -> bool:
    """Writes the damaged file and reads it; True where it was refused. Other errors, long messages, hangs and big allocations fail."""
    path.write_bytes(data)
    with _measured():
        try:
            use()
        except StrataError as error:
            assert "\n" not in str(error) and 10 < len(str(error)) < 2500, str(error)
            return True
    return False


class Hang(BaseException):
    """No answer: of a class that no reader catches."""


@contextmanager
def _measured() -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise Hang(f"no answer in {MOST_SECONDS} s of processor time, or in {MOST_WAIT_SECONDS} s")

    before = signal.signal(signal.SIGALRM, late), signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_REAL, MOST_WAIT_SECONDS)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGALRM, before[0])
        signal.signal(signal.SIGVTALRM, before[1])
    assert peak < MOST_BYTES, f"{peak:,} bytes at once"
