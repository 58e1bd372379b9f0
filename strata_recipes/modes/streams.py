"""Standard output and error that never end a run: UTF-8 in a pipe, and a reader that leaves costs only what it would have read."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO


class Patient(io.TextIOBase):
    """A text stream that goes to nowhere once its reader has left. A full drive is told as ever."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            _to_nowhere(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            _to_nowhere(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # of the stream behind
        return self._stream.encoding


def patient(stream: TextIO | None) -> TextIO:
    """The stream in UTF-8 unless it is a terminal; nowhere for one that was closed before the start."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if isinstance(stream, io.TextIOWrapper):
        # a pipe on Windows would take cp1252, and end the run at the first character that it lacks
        stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")
    return Patient(stream)  # type: ignore[return-value]


def _to_nowhere(stream: TextIO) -> None:
    """What is still in the buffers goes there too, so that the interpreter's last flush does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def install() -> None:
    """For the process that owns them."""
    sys.stdout, sys.stderr = patient(sys.stdout), patient(sys.stderr)
