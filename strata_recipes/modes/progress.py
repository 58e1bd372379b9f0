"""What a mode shows while it works: tables on stdout; bars of bytes, rate and time left on stderr, or a line now and then in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from strata_recipes.engine.watching import Progress
from strata_recipes.units import gb_per_s, gib

_LINE_EVERY_S = 10.0
_STEPS = {"fill": "filling VRAM slots", "copy": "copying to RAM"}
_PIPE_COLUMNS = 120  # where stdout is no terminal: rich would take 80 and fold numbers away


def console() -> Console:
    """Standard output, for tables."""
    return Console() if sys.stdout.isatty() else Console(width=_PIPE_COLUMNS)


@contextmanager
def bytes_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Gives `advance(done, total)`, both in bytes."""
    if not sys.stderr.isatty():
        yield _lines(what)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(True), TransferSpeedColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextmanager
def copy_bar() -> Iterator[Callable[[Progress], None]]:
    """The start-up copies: `fill` into VRAM slots, then `copy` into RAM."""
    with ExitStack() as bars:
        advances: dict[str, Callable[[int, int], None]] = {}

        def advance(at: Progress) -> None:
            if at.step not in advances:
                bars.close()  # of the step before
                advances[at.step] = bars.enter_context(bytes_bar(_STEPS[at.step]))
            advances[at.step](at.done_bytes, at.total_bytes)

        yield advance


@contextmanager
def token_bar(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A prompt being read: tokens, tokens a second, time left. Nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda done, of: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tokens"), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda done, of: bars.update(task, completed=done, total=of)


def _lines(what: str) -> Callable[[int, int], None]:
    start = last = time.monotonic()

    def advance(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _LINE_EVERY_S:
            last = now
            print(f"{what}: {gib(done)} of {gib(total)}, {gb_per_s(done / (now - start))}", file=sys.stderr, flush=True)

    return advance
