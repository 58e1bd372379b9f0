"""Chunked order visits each half of each layer for each token once; the start-up copies each placed blob once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata_recipes.schedule.prefill import Half, chunked_visits, chunks, layer_major_visits, step_visits
from strata_recipes.schedule.startup import batches, default_order, layers, startup_schedule
from tests.plan.cases import small_index


@given(st.integers(1, 5), st.integers(0, 200), st.integers(1, 70))
def test_chunked_order_covers_everything_once_and_in_order(layers: int, tokens: int, chunk: int) -> None:
    visits = list(chunked_visits(layers, tokens, chunk))
    seen = [(v.layer, token, v.half) for v in visits for token in range(v.start, v.stop)]
    assert sorted(seen, key=str) == sorted(((la, t, h) for la in range(layers) for t in range(tokens) for h in Half), key=str)
    for earlier, later in zip(visits, visits[1:], strict=False):
        # a chunk goes down the layers, mixer before experts; then the next chunk
        assert (earlier.start, earlier.layer, earlier.half is Half.experts) < (later.start, later.layer, later.half is Half.experts)
    assert all(v.start % chunk == 0 and 0 < v.stop - v.start <= chunk for v in visits)


@given(st.integers(1, 5), st.integers(0, 200), st.integers(1, 40), st.integers(1, 6))
def test_layer_major_order_is_the_same_mixer_visits_and_one_experts_visit_a_layer(la: int, tokens: int, chunk: int, factor: int) -> None:
    visits, chunked = list(layer_major_visits(la, tokens, chunk, chunk * factor)), list(chunked_visits(la, tokens, chunk))
    mixers = [[v for v in found if v.half is Half.mixer] for found in (visits, chunked)]
    assert set(mixers[0]) == set(mixers[1]) and len(mixers[0]) == len(mixers[1])
    for layer in range(la):  # token order in each layer, whose states move on with it
        assert [v for v in mixers[0] if v.layer == layer] == [v for v in mixers[1] if v.layer == layer]
    done: dict[int, int] = {-1: tokens}
    mixed = [0] * la
    for v in visits:
        if v.half is Half.mixer:
            assert done.get(v.layer - 1, 0) >= v.stop  # the layer below has read these tokens
            mixed[v.layer] = v.stop
        else:
            assert (v.start, v.stop) == (done.get(v.layer, 0), mixed[v.layer])
            done[v.layer] = v.stop
    assert all(done.get(layer, 0) == tokens for layer in range(la))
    assert len(visits) - len(mixers[0]) == la * -(-tokens // (chunk * factor))
    if tokens <= chunk or factor == 1:
        assert visits == chunked


def test_a_super_chunk_off_the_grid_is_refused() -> None:
    with pytest.raises(ValueError, match="30 tokens is no multiple of the chunk of 16"):
        list(layer_major_visits(2, 50, 16, 30))


@pytest.mark.parametrize(("tokens", "spans"), [(0, 0), (1, 1), (6, 1), (7, 1), (8, 2), (14, 2), (15, 3)])
def test_the_grid_at_its_edges(tokens: int, spans: int) -> None:
    assert len(list(chunks(tokens, 7))) == spans


@pytest.mark.parametrize("chunk", [0, -1])
def test_a_chunk_that_never_ends_is_refused(chunk: int) -> None:
    with pytest.raises(ValueError, match="never ends"):
        list(chunks(5, chunk))


@given(st.integers(0, 96), st.integers(0, 96))
def test_every_placed_blob_is_copied_once(slots: int, blobs: int) -> None:
    pack = small_index()
    order = default_order(pack)
    schedule = startup_schedule(pack, order, slots, blobs)
    fill, copy = ([(c.layer, c.expert) for c in copies] for copies in (schedule.fill, schedule.copy))
    assert sorted(fill) == sorted(order[:slots])
    assert sorted(copy) == sorted(order[slots : slots + blobs])
    for copies in (schedule.fill, schedule.copy):
        offsets = [c.offset for c in copies]
        assert offsets == sorted(offsets)  # file order
        assert [c.index for c in copies] == list(range(len(copies)))
        assert all((c.offset, c.num_bytes) == (pack.offset(c.layer, c.expert), pack.layers[c.layer].blob_bytes) for c in copies)


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_a_step_of_decode_is_one_mixer_visit_a_token_and_one_experts_visit_a_layer(rows: int) -> None:
    visits = list(step_visits(3, 40, rows))
    assert [(v.layer, v.start, v.stop) for v in visits if v.half is Half.experts] == [(layer, 40, 40 + rows) for layer in range(3)]
    for layer in range(3):
        spans = [(v.start, v.stop) for v in visits if v.layer == layer]
        assert spans == [(at, at + 1) for at in range(40, 40 + rows)] + [(40, 40 + rows)]
    assert [v.layer for v in visits] == sorted(v.layer for v in visits)


@given(st.integers(0, 96), st.integers(1, 100), st.integers(1, 1 << 22))
def test_batches_cover_each_byte_once_in_file_order_inside_a_batch(slots: int, size: int, merge: int) -> None:
    pack = small_index()
    fill = startup_schedule(pack, default_order(pack), slots, 0).fill
    found = batches(fill, size, merge)
    assert [set(batch.copies) for batch in found] == [set(fill[i : i + size]) for i in range(0, len(fill), size)]
    whole = sorted((extent.offset, extent.num_bytes) for batch in found for extent in batch.extents)
    assert all(a + n <= b for (a, n), (b, _) in zip(whole, whole[1:], strict=False)), "no byte is read twice"
    assert sum(n for _, n in whole) == sum(pack.layers[copy.layer].stride for copy in fill)
    for batch in found:
        starts = [extent.offset for extent in batch.extents]
        assert starts == sorted(starts) and batch.num_bytes == sum(extent.num_bytes for extent in batch.extents)
        for extent in batch.extents:
            assert len(extent.copies) == 1 or extent.num_bytes <= merge
            assert all(extent.offset <= c.offset and c.offset + c.num_bytes <= extent.offset + extent.num_bytes for c in extent.copies)
        # what touches and fits is one read
        for a, b in zip(batch.extents, batch.extents[1:], strict=False):
            first = pack.layers[b.copies[0].layer].stride
            assert a.offset + a.num_bytes < b.offset or a.num_bytes + first > merge


@given(st.integers(0, 96), st.integers(1, 1 << 22))
def test_layers_are_the_same_copies_layer_by_layer(blobs: int, merge: int) -> None:
    pack = small_index()
    copies = startup_schedule(pack, default_order(pack), 0, blobs).copy
    found = layers(copies, merge)
    assert [copy for batch in found for copy in batch.copies] == list(copies)
    assert [{copy.layer for copy in batch.copies} for batch in found] == [{layer} for layer in sorted({copy.layer for copy in copies})]


def test_batches_that_never_end_are_refused() -> None:
    with pytest.raises(ValueError, match="never end"):
        batches((), 0, 1)


def test_a_full_arena_copies_the_slots_blobs_too() -> None:
    pack = small_index()
    schedule = startup_schedule(pack, default_order(pack), 10, 86, ram_start=0)
    assert len(schedule.fill) == 10 and len(schedule.copy) == 96
    assert {(c.layer, c.expert) for c in schedule.copy} == set(default_order(pack))
