"""Processes of their own that do not import torch and compile kernels anew: forks of one that has. Starts none by itself."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.forked_from"])


def begin(errors: Path | str) -> None:
    """In the fork: a session of its own, and its error stream in a file."""
    os.setsid()
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)


def next_word(told: Connection) -> object:
    """What the fork says next; None where it ended without a word."""
    try:
        return told.recv()
    except EOFError:
        return None
