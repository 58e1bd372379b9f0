"""Ctrl-C that is not lost: Python drops a KeyboardInterrupt raised inside a callback or destructor, a flag stays."""

from __future__ import annotations

import signal
import time
from types import FrameType

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")  # Ctrl-C, a service manager's or a container's end, a closed terminal
_GRACE_S = 2.0  # that a run takes to end


class Interrupt:
    """The handler of the process: remembers, and interrupts as ever.

    A second Ctrl-C while the first is being obeyed must not stop what closes files and ends children; a later one may.
    """

    def __init__(self) -> None:
        self._until: float | None = None

    @property
    def asked(self) -> bool:
        return self._until is not None

    def install(self) -> None:
        """For every signal that asks to end, but those that this process was told to ignore (nohup)."""
        for number in (getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._until is None or now > self._until:
            self._until = now + _GRACE_S
            raise KeyboardInterrupt


def interrupted() -> bool:
    """Whether the user has asked to stop; False where another handler is installed."""
    handler = signal.getsignal(signal.SIGINT)
    return isinstance(handler, Interrupt) and handler.asked


def raise_if_interrupted() -> None:
    if interrupted():
        raise KeyboardInterrupt
