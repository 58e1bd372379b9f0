"""Ctrl-C that is not lost: Python drops a KeyboardInterrupt raised inside a callback or destructor, a flag stays."""

from __future__ import annotations

import signal
from types import FrameType


class Interrupt:
    """The SIGINT handler of the process: remembers, and interrupts as ever."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        raise KeyboardInterrupt


def interrupted() -> bool:
    """Whether the user has asked to stop; False where another handler is installed."""
    handler = signal.getsignal(signal.SIGINT)
    return isinstance(handler, Interrupt) and handler.asked


def raise_if_interrupted() -> None:
    if interrupted():
        raise KeyboardInterrupt
