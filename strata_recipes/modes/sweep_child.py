"""A sweep's job: the command line as ever, in a process that ends as by Ctrl-C when its standard input closes."""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from typing import NoReturn

from strata_recipes.errors import EXIT_INTERRUPTED
from strata_recipes.modes.entry import process

_ENDING_S = 2.0


def main() -> NoReturn:
    """Never outlives the sweep that started it."""
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    process()


def _end_with_parent() -> None:
    while os.read(0, 1):  # not sys.stdin: its lock, held by a daemon thread, would spoil the interpreter's end
        pass
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # a real one: it ends a system call too
    else:
        _thread.interrupt_main()
    time.sleep(_ENDING_S)
    os._exit(EXIT_INTERRUPTED)
