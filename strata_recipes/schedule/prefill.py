"""In which order a prompt is read: visits of layer halves over token spans, as plain data. Knows no model and no memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum


class Half(Enum):
    """The two halves of a layer: the mixer (attention or GDN, router, shared expert), then the routed experts."""

    mixer = "mixer"
    experts = "experts"


@dataclass(frozen=True)
class Visit:
    """One layer's half over tokens start <= t < stop."""

    layer: int
    start: int
    stop: int
    half: Half


def chunks(num_tokens: int, chunk: int) -> Iterator[tuple[int, int]]:
    """The grid: spans of `chunk` tokens from 0, the last one shorter."""
    if chunk < 1:
        raise ValueError(f"a chunk of {chunk} tokens never ends: use 1 or more")
    for start in range(0, num_tokens, chunk):
        yield start, min(start + chunk, num_tokens)


def passes(num_tokens: int, tokens: int) -> Iterator[tuple[int, int]]:
    """The spans that go through all layers before the next one: a chunk's, or a super-chunk's."""
    return chunks(num_tokens, tokens)


def pass_visits(layers: Iterable[int], first: int, last: int, chunk: int) -> Iterator[Visit]:
    """One pass: each layer's mixer chunk by chunk, then its experts at once."""
    for layer in layers:
        for start, stop in chunks(last - first, chunk):
            yield Visit(layer, first + start, first + stop, Half.mixer)
        yield Visit(layer, first, last, Half.experts)


def chunked_visits(num_layers: int, num_tokens: int, chunk: int) -> Iterator[Visit]:
    """Chunked order: each chunk walks all layers."""
    for first, last in passes(num_tokens, chunk):
        yield from pass_visits(range(num_layers), first, last, chunk)


def layer_major_visits(num_layers: int, num_tokens: int, chunk: int, super_chunk: int) -> Iterator[Visit]:
    """Layer-major order: each super-chunk goes through a layer's mixer chunk by chunk, then through its experts at once.

    The spans of the mixer are those of chunked order, so both run the same mixer visits. A super-chunk of one chunk is chunked order.
    """
    if super_chunk % chunk:
        raise ValueError(f"a super-chunk of {super_chunk} tokens is no multiple of the chunk of {chunk}")
    for first, last in passes(num_tokens, super_chunk):
        yield from pass_visits(range(num_layers), first, last, chunk)


def expert_layers(visits: Iterable[Visit]) -> Iterator[int]:
    """The layers whose experts are visited, in order: what a reader may ask for ahead."""
    return (visit.layer for visit in visits if visit.half is Half.experts)


def step_visits(num_layers: int, first: int, num_tokens: int) -> Iterator[Visit]:
    """A step of decode: each layer's mixer token by token, as plain decode would do it, then its experts once for all of them."""
    return pass_visits(range(num_layers), first, first + num_tokens, chunk=1)
