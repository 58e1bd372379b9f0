"""The numbers of the n-gram hash: multipliers from a seed, and one prime table size a head. Pure.

The rule is the public model's: head h of a layer's table has the h-th prime from a base on, so that no two heads collide
alike; multipliers are odd, drawn with splitmix64, and small enough that a product with a token id stays under 2**63.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import isqrt

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15  # splitmix64's step: 2**64 over the golden ratio


def hash_multipliers(vocab: int, ngram_size: int, seed: int) -> tuple[int, ...]:
    """One odd multiplier for each position of an n-gram."""
    half = max(1, ((1 << 63) - 1) // max(vocab, 1) // 2)
    # the public code adds the step once itself and once more inside the generator
    return tuple(2 * (_splitmix64(seed + _GAMMA * position) % half) + 1 for position in range(1, ngram_size + 1))


def table_sizes(base: int, num_heads: int) -> tuple[int, ...]:
    """The first primes from `base` on, one a head."""
    primes = _primes(base, 1)
    return tuple(next(primes) for _ in range(num_heads))


def table_sizes_within(rows: int, num_heads: int) -> tuple[int, ...]:
    """Distinct primes that fit together in `rows`, as large as can be; ValueError for too small a table."""
    primes = _primes(rows // num_heads, -1)
    sizes = tuple(prime for prime, _ in zip(primes, range(num_heads), strict=False))
    if len(sizes) < num_heads:
        raise ValueError(f"an n-gram table of {rows:,} rows is too small for {num_heads} heads of distinct prime sizes")
    return sizes


def table_offsets(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """First row of each head: the heads' tables lie one after the other."""
    return (0, *accumulate(sizes[:-1]))


def _splitmix64(value: int) -> int:
    value = (value + _GAMMA) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _primes(start: int, step: int) -> Iterator[int]:
    number = start
    while number >= 2:
        if number in (2, 3) or (number % 2 and all(number % d for d in range(3, isqrt(number) + 1, 2))):
            yield number
        number += step
