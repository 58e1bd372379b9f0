"""Seconds of a run from its process's start, so that imports count; a sweep's jobs are processes of their own."""

from __future__ import annotations

import time

import psutil


class Clock:
    """Counts from where the user began to wait."""

    def __init__(self) -> None:
        self._start = psutil.Process().create_time()

    def seconds(self) -> float:
        return time.time() - self._start
