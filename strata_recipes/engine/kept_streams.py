"""Where a super-chunk's residual streams lie between visits: where they were made, or in page-locked RAM. Knows no visit."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import torch
from torch import Tensor

from strata_recipes.plan.budget import SPANS_CROSSING
from strata_recipes.tiers.cuda_memory import LockedBuffer, Locks, tensor_of


class KeptStreams(Protocol):
    """Streams [T, S*H] of spans."""

    def keep(self, streams: Tensor, start: int) -> Tensor:
        """Those of tokens from `start` on, for `back`; the caller lets go of what it gave."""

    def back(self, kept: Tensor) -> Tensor:
        """Where they are computed with."""

    def close(self) -> None: ...


class StreamsInPlace:
    """They stay where they are."""

    def keep(self, streams: Tensor, start: int) -> Tensor:
        return streams

    def back(self, kept: Tensor) -> Tensor:
        return kept

    def close(self) -> None:
        """Nothing was taken."""


class StreamsInRam:
    """Copied down and up on streams of their own, while the card computes on other spans."""

    def __init__(self, first: int, num_tokens: int, width: int, device: torch.device, locks: Locks) -> None:
        self._first = first
        self._device = device
        self._memory = LockedBuffer(num_tokens * width * 4, 4096, locks)
        self._rows = tensor_of(self._memory.bytes).view(torch.float32).view(num_tokens, width)
        self._down, self._up = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self._under_way: deque[torch.cuda.Event] = deque()  # of the spans that came up, oldest first

    def keep(self, streams: Tensor, start: int) -> Tensor:
        at = start - self._first
        kept = self._rows[at : at + streams.shape[0]]
        self._down.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._down):
            kept.copy_(streams, non_blocking=True)
        streams.record_stream(self._down)  # its memory is not reused before the copy
        gone = torch.cuda.Event()
        gone.record(self._down)
        self._under_way.append(gone)
        return kept

    def back(self, kept: Tensor) -> Tensor:
        while len(self._under_way) >= SPANS_CROSSING:  # what the plan counts; the host would queue all spans at once
            self._under_way.popleft().synchronize()
        self._up.wait_stream(self._down)
        computing = torch.cuda.current_stream()
        with torch.cuda.stream(self._up):
            streams = kept.to(self._device, non_blocking=True)
        computing.wait_stream(self._up)
        streams.record_stream(computing)
        return streams

    def close(self) -> None:
        self._down.synchronize()
        self._up.synchronize()
        self._rows = self._rows[:0].clone()
        self._memory.close()
