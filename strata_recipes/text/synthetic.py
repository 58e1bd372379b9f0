"""A seeded prompt of any length: random ordinary token ids. Knows no text."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from strata_recipes.errors import ConfigError

_SEEDS = 2**63


def synthetic_ids(num_tokens: int, seed: int, vocab: int, avoid: Collection[int] = ()) -> np.ndarray:
    """int32 [num_tokens], uniform over the vocabulary without `avoid`; prompts of two seeds differ in their first tokens."""
    ordinary = np.ones(vocab, bool)
    ordinary[list(avoid)] = False
    usable = np.flatnonzero(ordinary)
    if len(usable) < 2:
        raise ConfigError(
            f"workload.tokens wants a synthetic prompt, and the vocabulary of {vocab} has {len(usable)} ordinary tokens, wanted 2 or more"
        )
    picks = np.random.Generator(np.random.PCG64(seed)).integers(0, len(usable), num_tokens)
    prefix = _prefix(seed, len(usable))[:num_tokens]
    picks[: len(prefix)] = prefix
    return usable[picks].astype(np.int32)


def _prefix(seed: int, base: int) -> list[int]:
    """The seed's digits, each turned by a fixed amount, so that a small seed does not repeat one token."""
    digits, span = [], 1
    while span < max(_SEEDS, seed + 1):
        digits.append(seed // span % base)
        span *= base
    turns = np.random.Generator(np.random.PCG64(0)).integers(0, base, len(digits))
    return [(digit + int(turn)) % base for digit, turn in zip(digits, turns, strict=True)]
