"""A prompt's way through the tiers: exact bytes whatever is skipped, late or failed; nothing read twice, nothing left asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata_recipes.errors import FileError
from strata_recipes.files.buffered import BufferedFile
from strata_recipes.files.source import Bytes
from strata_recipes.tiers.file_tier import StagedTier
from strata_recipes.tiers.lookup import ExpertTiers
from strata_recipes.tiers.prompt_path import PromptPath
from strata_recipes.tiers.stager import Stager
from tests.tiers.small_pack import SmallPack
from tests.tiers.test_lookup import tiers_of

LAYERS, EXPERTS = 3, 6


class LateFile(BufferedFile):
    """Reads in any order of time, and refuses some offsets."""

    def __init__(self, pack: SmallPack, seed: int = 0, slowest_s: float = 0.001) -> None:
        super().__init__(pack.path, pack.index.experts_file_bytes)
        self.rng, self.slowest_s, self.fail = np.random.default_rng(seed), slowest_s, set[int]()
        self.offsets: list[int] = []

    def read(self, offset: int, num_bytes: int, out: Bytes) -> None:
        self.offsets.append(offset)
        time.sleep(self.rng.random() * self.slowest_s)
        if offset in self.fail:
            raise FileError(f"offset {offset}: errno 5")
        super().read(offset, num_bytes, out)


@contextmanager
def prompt_tiers(pack: SmallPack, file: LateFile, slots: int, buffers: int, threads: int) -> Iterator[ExpertTiers]:
    tiers = tiers_of(pack, slots, 0, None)
    stager = Stager(file, buffers, max(at.stride for at in pack.index.layers), threads, poison=True)
    tiers.prompt = StagedTier(file, stager, pack.index)
    yield tiers
    assert not any(stager._lines)  # nothing is left asked for, no buffer held
    tiers.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("stager-")]


@settings(max_examples=60, deadline=None)
@given(
    slots=st.integers(0, 18),
    buffers=st.integers(1, 16),
    threads=st.integers(1, 16),
    prefetch=st.booleans(),
    routed=st.lists(st.sets(st.integers(0, EXPERTS - 1)), min_size=1, max_size=9),
    seed=st.integers(0, 99),
    wait=st.booleans(),
)
def test_exact_bytes_and_nothing_read_twice(
    small_pack: SmallPack, slots: int, buffers: int, threads: int, prefetch: bool, routed: list[set[int]], seed: int, wait: bool
) -> None:
    """Skips fall before, while and after their reads: `wait` lets reads come in before the routing is known."""
    file, layers = LateFile(small_pack, seed), [number % LAYERS for number in range(len(routed))]
    with prompt_tiers(small_pack, file, slots, buffers, threads) as tiers:
        with PromptPath(tiers, iter(layers), prefetch=prefetch) as path:
            for layer, experts in zip(layers, routed, strict=True):
                path.layer_starts()
                time.sleep(0.002 * wait)
                for expert, blob in path.blobs(layer, sorted(experts)):
                    np.testing.assert_array_equal(blob, small_pack.blobs[layer, expert])
            read = path.read_bytes()
        counters, passes = tiers.take_counters(), -(-len(routed) // LAYERS)
        assert read == file.counters.bytes_read and counters.file_bytes <= read <= passes * tiers.file_bytes()
        assert prefetch or read == counters.file_bytes
        assert max((file.offsets.count(offset) for offset in file.offsets), default=0) <= passes
        in_file = {small_pack.index.offset(layer, expert) for layer in range(LAYERS) for expert in tiers.in_file(layer, range(EXPERTS))}
        assert set(file.offsets) <= in_file  # residents are never read


@settings(max_examples=30, deadline=None)
@given(buffers=st.integers(1, 16), threads=st.integers(1, 16), bad=st.integers(0, 17), seed=st.integers(0, 99))
def test_after_a_failed_read_the_next_prompt_is_right(small_pack: SmallPack, buffers: int, threads: int, bad: int, seed: int) -> None:
    file = LateFile(small_pack, seed)
    with prompt_tiers(small_pack, file, 0, buffers, threads) as tiers:
        for failing in (True, False, True, False):
            file.fail = {small_pack.index.offset(*divmod(bad, EXPERTS))} if failing else set()
            found = []
            try:
                with PromptPath(tiers, iter(range(LAYERS)), prefetch=True) as path:
                    for layer in range(LAYERS):
                        path.layer_starts()
                        found += [(layer, expert, blob.copy()) for expert, blob in path.blobs(layer, range(EXPERTS))]
            except FileError as error:
                assert failing and f"offset {small_pack.index.offset(*divmod(bad, EXPERTS))}" in str(error)
            assert failing or len(found) == 18
            for layer, expert, blob in found:
                np.testing.assert_array_equal(blob, small_pack.blobs[layer, expert])
            assert tiers.prompt is not None
            tiers.prompt.stager.settle()


def test_a_failed_read_of_what_the_routing_skips_is_nobodys_error(small_pack: SmallPack) -> None:
    file = LateFile(small_pack)
    file.fail = {small_pack.index.offset(0, 1), small_pack.index.offset(1, 5)}
    with prompt_tiers(small_pack, file, 0, 16, 4) as tiers, PromptPath(tiers, iter(range(LAYERS)), prefetch=True) as path:
        for layer, experts in ((0, [0, 2, 5]), (1, [0, 4]), (2, [3])):
            path.layer_starts()
            assert [expert for expert, _ in path.blobs(layer, experts)] == experts
        path.read_bytes()


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_prompt_given_up_leaves_nothing(after: int, small_pack: SmallPack) -> None:
    with prompt_tiers(small_pack, LateFile(small_pack), 3, 4, 2) as tiers:
        with pytest.raises(KeyboardInterrupt), PromptPath(tiers, iter(range(LAYERS)), prefetch=True) as path:
            for layer in range(LAYERS):
                path.layer_starts()
                if layer == after:
                    raise KeyboardInterrupt
                for _ in path.blobs(layer, [1, 4]):
                    pass
        assert tiers.prompt is not None
        tiers.prompt.stager.settle()


def test_the_next_layer_is_read_while_this_one_computes(small_pack: SmallPack) -> None:
    file = LateFile(small_pack)
    with prompt_tiers(small_pack, file, 0, 12, 4) as tiers, PromptPath(tiers, iter(range(LAYERS)), prefetch=True) as path:
        path.layer_starts()
        assert tiers.prompt is not None
        for _ in range(1000):  # only a failure waits long
            if file.counters.reads == 12:
                break
            time.sleep(0.01)
        assert sorted(file.offsets) == [small_pack.index.offset(layer, expert) for layer in (0, 1) for expert in range(EXPERTS)]


def test_warm_is_told_this_and_the_next_layers_ranges(small_pack: SmallPack) -> None:
    told: list[int] = []
    tiers = tiers_of(small_pack, 4, 0, None)
    with PromptPath(tiers, iter(range(LAYERS)), prefetch=False, warm=lambda offset, num_bytes: told.append(offset)) as path:
        path.layer_starts()
        in_file = [[small_pack.index.offset(layer, e) for e in tiers.in_file(layer, range(EXPERTS))] for layer in range(LAYERS)]
        assert told == in_file[0] + in_file[1]
        list(path.blobs(0, []))
        path.layer_starts()
        assert told == [offset for offsets in in_file for offset in offsets]
    tiers.close()


def test_a_layer_that_was_not_announced_is_a_mistake(small_pack: SmallPack) -> None:
    with prompt_tiers(small_pack, LateFile(small_pack), 0, 2, 2) as tiers:
        with PromptPath(tiers, iter([0, 1]), prefetch=True) as path:
            path.layer_starts()
            with pytest.raises(AssertionError, match="layer 2 came where 0 was announced"):
                path.blobs(2, [1])
        assert tiers.prompt is not None
        tiers.prompt.stager.settle()
