"""The n-gram hash against plain Python integers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from strata_recipes.model.ple import NgramHash
from strata_recipes.pack.index import Geometry

EOS = 2


def signed(value: int) -> int:
    """The low 64 bits as a signed number: what int64 arithmetic leaves."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def rows(g: Geometry, ids: list[int], at: int) -> list[int]:
    """Table rows of the n-grams that end at ids[at]; nothing from before an end of text is seen."""
    found = []
    for order in range(2, g.ngram_size + 1):
        mixed = signed(ids[at] * g.ngram_multipliers[0])
        for shift in range(1, order):
            cut = at - shift < 0 or EOS in ids[at - shift : at]
            mixed ^= signed((EOS if cut else ids[at - shift]) * g.ngram_multipliers[shift])
        heads = range((order - 2) * g.ngram_heads, (order - 1) * g.ngram_heads)
        found += [mixed % g.ngram_vocab_sizes[head] + g.ngram_offsets[head] for head in heads]
    return found


@pytest.fixture(scope="module")
def geometry(small: Any) -> Geometry:
    return dataclasses.replace(
        small[1].index.geometry,
        ngram_size=4,
        ngram_heads=2,
        ngram_multipliers=(6148914691236517205, 9223372036854775807, 3, 1234567890123456789),
        ngram_vocab_sizes=(53, 59, 61, 67, 71, 73),
        ngram_offsets=(0, 53, 112, 173, 240, 311),
    )


@pytest.mark.parametrize("span", [1, 2, 3, 50])
def test_rows_equal_plain_integers_over_any_spans(geometry: Geometry, span: int) -> None:
    ids = np.random.default_rng(0).integers(0, 90, 50).tolist()
    for at in (0, 7, 8, 20, 22, 49):
        ids[at] = EOS
    hash_, history = NgramHash(geometry, 0), torch.full((3,), EOS)
    got = [hash_(torch.tensor(ids[at : at + span]), history) for at in range(0, 50, span)]
    assert torch.cat(got).tolist() == [rows(geometry, ids, at) for at in range(50)]


def test_a_second_layer_has_its_own_constants(geometry: Geometry) -> None:
    other = dataclasses.replace(geometry, ngram_multipliers=(5, 7, 9, 11), ngram_vocab_sizes=(5,) * 6, ngram_offsets=(9,) * 6)
    both = dataclasses.replace(
        geometry,
        **{name: getattr(geometry, name) + getattr(other, name) for name in ("ngram_multipliers", "ngram_vocab_sizes", "ngram_offsets")},
    )
    ids = torch.tensor([5, 6, 7, 8])
    for which, alone in enumerate((geometry, other)):
        want = NgramHash(alone, 0)(ids, torch.full((3,), EOS))
        assert torch.equal(NgramHash(both, which)(ids, torch.full((3,), EOS)), want)
