"""What a layer's mixer half hands to its experts half, as one value."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class MixerOut:
    """T tokens, S streams, H hidden, k experts a token. `acc` is the one that is written: experts add into it."""

    streams: Tensor  # [T, S*H] after attention or GDN
    x: Tensor  # [T, H] what the experts read
    experts: Tensor  # int64 [T, k]
    weights: Tensor  # [T, k]
    acc: Tensor  # [T, H] starts as the shared expert's output
    inject: Tensor  # [T, S] how strongly each stream takes acc
