from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata_recipes.errors import ModelError
from strata_recipes.model.sampler import generator, sample
from strata_recipes.plan.plan import DecodePlan

GREEDY = DecodePlan("greedy", 16, True, 0.0, 0, 1.0, 0)
SAMPLE = DecodePlan("sample", 16, True, 1.0, 0, 1.0, 0)
INF = float("inf")


def drawn(logits: list[float], decode: DecodePlan, times: int = 400) -> np.ndarray:
    rng = generator(decode)
    return np.bincount([sample(np.array(logits, np.float32), decode, rng) for _ in range(times)], minlength=len(logits))


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(
    ("logits", "best"),
    [
        ([1, 3, 3, 2], 1),
        ([0, 0, 0], 0),
        ([-INF, -INF, -5, -INF], 2),
        ([1, INF, 3], 1),
        ([INF, 1, INF], 0),
        ([-0.0, 0.0], 0),
        ([3e38, 3.1e38, -3e38], 1),
    ],
)
@pytest.mark.parametrize("decode", [GREEDY, *(replace(SAMPLE, temperature=t) for t in (0.0, 1e-9, 1e-40)), replace(SAMPLE, top_k=1)])
def test_the_best_token_and_the_lowest_id_on_a_tie(logits, best, decode):
    assert sample(np.array(logits, np.float32), decode, generator(decode)) == best


def test_greedy_draws_nothing_and_sampling_one_number_a_token():
    rng, twin = generator(SAMPLE), generator(SAMPLE)
    sample(np.zeros(5, np.float32), GREEDY, rng)
    assert rng.random() == twin.random()
    for decode in (SAMPLE, replace(SAMPLE, top_k=2), replace(SAMPLE, top_p=0.5)):
        sample(np.arange(5, dtype=np.float32), decode, rng)
        twin.random()
        assert rng.random() == twin.random()


def test_the_same_seed_draws_the_same_and_another_seed_other_tokens():
    logits = [0.1 * i for i in range(50)]
    draws = [
        [sample(np.array(logits, np.float32), d, rng) for _ in range(64)]
        for d in (SAMPLE, SAMPLE, replace(SAMPLE, seed=1))
        for rng in [generator(d)]
    ]
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_follow_the_softmax(temperature):
    logits = np.array([0.0, 1.0, 2.0, -INF])
    counts = drawn(logits.tolist(), replace(SAMPLE, temperature=temperature), 20_000)
    weights = np.exp(logits / temperature)
    expected = weights / weights.sum() * 20_000
    assert counts[3] == 0
    assert np.abs(counts - expected).max() < 4 * 71  # four deviations of a binomial at its widest


def test_top_k_keeps_the_k_best_with_the_lowest_ids_on_a_tie():
    assert (drawn([1, 2, 2, 2, 0], replace(SAMPLE, top_k=2)) > 0).tolist() == [False, True, True, False, False]
    assert (drawn([1, 1, 1], replace(SAMPLE, top_k=5)) > 0).all()
    assert (drawn([1, 1, 1], replace(SAMPLE, top_k=0)) > 0).all()


def test_top_p_keeps_the_smallest_set_that_reaches_the_share():
    logits = np.log([0.1, 0.5, 0.15, 0.25]).tolist()
    kept = {p: np.flatnonzero(drawn(logits, replace(SAMPLE, top_p=p))).tolist() for p in (0.0, 0.49, 0.6, 0.76, 0.95, 1.0)}
    assert kept == {0.0: [1], 0.49: [1], 0.6: [1, 3], 0.76: [1, 2, 3], 0.95: [0, 1, 2, 3], 1.0: [0, 1, 2, 3]}


def test_top_p_is_of_what_top_k_left():
    logits = np.log([0.4, 0.3, 0.2, 0.1]).tolist()  # the two best are 0.571 and 0.429 of what is left
    assert np.flatnonzero(drawn(logits, replace(SAMPLE, top_k=2, top_p=0.57))).tolist() == [0]
    assert np.flatnonzero(drawn(logits, replace(SAMPLE, top_k=2, top_p=0.58))).tolist() == [0, 1]


@pytest.mark.parametrize("decode", [GREEDY, SAMPLE, replace(SAMPLE, temperature=0.0), replace(SAMPLE, top_k=1)])
@pytest.mark.parametrize(
    ("logits", "told"),
    [
        ([1, float("nan"), float("nan")], "2 of 3 logits are NaN, the first at token 1"),
        ([-INF, -INF], "all 2 logits are -inf"),
        ([], r"shape \[0\]"),
        ([[1, 2]], r"shape \[1, 2\]"),
    ],
)
def test_logits_that_mean_nothing_are_refused(decode, logits, told):
    with pytest.raises(ModelError, match=told):
        sample(np.array(logits, np.float32), decode, generator(decode))


@settings(max_examples=300, deadline=None)
@given(
    logits=st.lists(
        st.one_of(st.floats(-(2.0**99), 2.0**99, width=32), st.just(-INF), st.sampled_from([0.0, 1.0])), min_size=1, max_size=12
    ),
    temperature=st.floats(1e-5, 1e4),
    top_k=st.integers(0, 14),
    top_p=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_never_a_token_that_cannot_be(logits, temperature, top_k, top_p, seed):
    if max(logits) == -INF:
        return
    decode = replace(SAMPLE, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    token = sample(np.array(logits, np.float32), decode, generator(decode))
    assert logits[token] > -INF
    if top_k:
        assert sorted(range(len(logits)), key=lambda i: (-logits[i], i)).index(token) < top_k
