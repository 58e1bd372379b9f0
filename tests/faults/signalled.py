"""What the process does that test_signals sends signals to: the program itself, held at one moment, which it tells the test."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from strata_recipes.modes import interrupt
from strata_recipes.modes.entry import process
from strata_recipes.modes.reply import Reply
from strata_recipes.pack.output_file import OutputFile
from tests.forks import begin


def main(moment: str, words: Sequence[str], tell: Connection, errors: Path) -> None:
    def at(owner: type, name: str, when: Callable[..., bool] = lambda *args: True) -> None:
        plain = getattr(owner, name)

        def patched(*args: Any, **more: Any) -> Any:
            if when(*args):
                tell.send("now")
                for _ in range(6000):
                    time.sleep(0.05)  # a signal just before one long sleep would not end it
            return plain(*args, **more)

        setattr(owner, name, patched)

    begin(errors)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    interrupt._GRACE_S = 600.0  # both signals fall into it, however late this process gets to them
    if moment == "first byte of a pack":
        at(OutputFile, "write")
    if moment == "amid a pack":
        at(OutputFile, "write", lambda file, data: file.written > 100_000)
    if moment == "before the manifest":
        at(OutputFile, "commit", lambda file: file.path.name == "pack.json")
    if moment == "reply":
        at(Reply, "push")
    sys.argv = ["run.py", *words]
    process()
