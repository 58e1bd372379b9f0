"""A causal depthwise convolution over tokens whose past is carried from span to span. Knows nothing of what it convolves."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def short_conv(x: Tensor, past: Tensor, weight: Tensor, dilation: int = 1) -> Tensor:
    """silu of sum_j weight[:, j] * (the input (taps - 1 - j) * dilation tokens back).

    x [T, C]; past [(taps - 1) * dilation, C] is the input before x and is moved on in place; weight [C, taps].
    """
    num_tokens, taps = x.shape[0], weight.shape[1]
    joined = torch.cat((past, x))
    out = joined[:num_tokens] * weight[:, 0]
    for tap in range(1, taps):
        out = torch.addcmul(out, joined[tap * dilation : tap * dilation + num_tokens], weight[:, tap])
    past.copy_(joined[num_tokens:])
    return functional.silu(out)
