"""Predicted times: by hand where one resource decides, and the laws that hold for any machine and load."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata_recipes.machine.facts import Efficiency, Machine
from strata_recipes.schedule.startup import batches, default_order, startup_schedule
from strata_recipes.simulate.clock import COMPUTE, DRIVE, LINK
from strata_recipes.simulate.load import StartLoad
from strata_recipes.simulate.prefill import groups
from strata_recipes.simulate.simulate import Simulator, predict
from strata_recipes.simulate.startup import startup
from strata_recipes.simulate.work import work_of
from tests.plan.cases import index_of, machine, small_index
from tests.simulate.loads import BLOB, FREE, PACK, STRIDE, laptop, load, timed

LAYER_MAJOR: dict[str, Any] = dict(super_chunk=13_312, direct=True, prefetch=True, buffers=512.0)


# by hand


def test_a_mapped_start_by_hand() -> None:
    pc = laptop()
    fill, copy = 2_000 * BLOB, 5_000 * BLOB
    faults, link, ram = 1 / pc.drive.faults, 1 / 6.5e9, 1 / 40e9
    found = startup(pc, StartLoad("mapped", fill, copy, 0.0, 9.0), PACK.dense_bytes)
    assert found.fill_s == pytest.approx(fill * (faults + link)) and found.copy_s == pytest.approx(copy * (faults + ram))
    assert found.dense_s == pytest.approx(PACK.dense_bytes * (faults + link)) and found.purge_s == 0
    warm = startup(pc, StartLoad("mapped", fill, copy, 0.25, 9.0, dense_cached_share=1.0), PACK.dense_bytes)
    assert warm.fill_s == pytest.approx(fill * (0.25 / 10e9 + 0.75 * faults + link)) and warm.drive_bytes == 0.75 * (fill + copy)


def test_an_unbuffered_start_reads_a_batch_while_the_last_one_is_copied() -> None:
    pc = laptop(gpu__pcie=3.5e9)
    fill = 6_400 * BLOB
    one = fill / 100 / 3.5e9
    found = startup(pc, StartLoad("unbuffered", fill, 0, 0.5, 1.5, fill_batches=100, depth=2), 0)
    assert found.fill_s == pytest.approx(101 * one) and found.purge_s == 1.5 and found.drive_bytes == fill
    alone = startup(pc, StartLoad("unbuffered", fill, 0, 0.5, 1.5, fill_batches=100, depth=1), 0)
    assert alone.fill_s == pytest.approx(200 * one)
    assert startup(pc, StartLoad("unbuffered", 0, 0, 0.5, 1.5), 0).moved_s == 0.0


def test_the_batches_are_the_schedules() -> None:
    pack = small_index()
    schedule = startup_schedule(pack, default_order(pack), 50, 20)
    assert len(batches(schedule.fill, 16, 1 << 20)) == -(-50 // 16)


def test_decode_from_ram_by_hand() -> None:
    """480 experts a token over PCIe and the dense weights once; the last blob of a layer is computed after it came."""
    found = timed(ram_blobs=24_576, file_blobs=0, tokens=1, new_tokens=1).prediction
    dense = (PACK.dense_bytes - 675_430_400) / 336e9
    assert 1 / found.decode_tokens_per_s == pytest.approx(480 * BLOB / 6.5e9 + dense, rel=0.03)


def test_the_bytes_of_the_reports_base_order() -> None:
    """509 GB of expert bytes for 12.9K tokens in chunks of 512."""
    found = timed(laptop(drive__direct=1e9, gpu__pcie=FREE, gpu__flops=FREE, gpu__bandwidth=FREE), direct=True)
    assert found.prompt.bytes.drive == pytest.approx(509e9, rel=0.06)
    assert found.prompt.seconds == pytest.approx(found.prompt.bytes.drive / 1e9, rel=0.01)


def test_one_pass_reads_what_it_touches_once() -> None:
    pc = laptop(drive__direct=1e9, gpu__pcie=FREE, gpu__flops=FREE, gpu__bandwidth=FREE)
    found = timed(pc, super_chunk=13_312, direct=True)
    assert found.prompt.bytes.drive == pytest.approx(found.prompt.bytes.touched) == pytest.approx(0.79 * 24_576 * STRIDE, rel=0.02)
    one = timed(pc, super_chunk=512, tokens=512, direct=True).prompt
    assert one.bytes == timed(pc, tokens=512, direct=True).prompt.bytes  # a super-chunk of one chunk is chunked order


def test_layer_major_reads_while_it_computes() -> None:
    """With room for a layer ahead the longer of drive and compute remains, and a little; without, both."""
    pc = laptop(drive__direct=3.5e9)
    ahead = timed(pc, **LAYER_MAJOR).prompt
    most = max(ahead.busy_s[COMPUTE], ahead.busy_s[DRIVE])
    assert most <= ahead.seconds <= 1.1 * most
    behind = timed(pc, **(LAYER_MAJOR | dict(prefetch=False, buffers=8.0))).prompt
    assert behind.seconds > 1.2 * ahead.seconds
    assert behind.bytes.drive < ahead.bytes.drive <= behind.bytes.drive * 1.3  # some are read ahead in vain


def test_residual_streams_in_ram_cross_the_link_both_ways() -> None:
    far = timed(streams_cross=True, **LAYER_MAJOR).prompt
    streams = 12_900 * 48 * 4 * 2560 * 4
    blobs = far.bytes.staged / 6.5e9
    assert far.busy_s[LINK] == pytest.approx(blobs + streams / 6.5e9, rel=1e-6)


def test_free_resources_leave_the_compute_alone() -> None:
    pc = laptop(drive__direct=FREE, drive__faults=FREE, drive__cached=FREE, gpu__pcie=FREE, gpu__bandwidth=FREE)
    work = work_of(PACK)
    ops = sum(work.mixer_ops(layer, 0, 12_900) + work.expert_ops(12_900) for layer in work.layers) + 2 * work.head_values
    for changes in ({}, LAYER_MAJOR):
        assert timed(pc, **changes).prompt.seconds == pytest.approx(ops / 20e12, rel=1e-4)
    assert ops / 12_900 == pytest.approx(12e9, rel=0.1)  # what the reports count a token


# laws

SIZES = st.integers(0, 24_576)


@st.composite
def loads(draw: st.DrawFn) -> dict[str, Any]:
    slots = draw(st.integers(0, 20_000))
    ram = draw(st.integers(0, 24_576 - slots))
    tokens, chunk = draw(st.integers(1, 40_000)), draw(st.sampled_from([64, 512, 2048]))
    major = draw(st.booleans())
    return dict(
        vram_slots=slots, ram_blobs=ram, file_blobs=24_576 - slots - ram, ranked=draw(st.booleans()), tokens=tokens, chunk=chunk,
        cache_bytes=draw(st.integers(0, 40 << 30)), super_chunk=chunk * draw(st.integers(1, 20)) if major else None,
        streams_cross=draw(st.booleans()), direct=draw(st.booleans()), prefetch=major and draw(st.booleans()),
        buffers=float(draw(st.integers(1, 600))), drafted=draw(st.integers(1, 4)), cpu_share=draw(st.sampled_from([0.0, 0.5])),
        strategy=draw(st.sampled_from(["mapped", "unbuffered"])), fill_bytes=slots * BLOB, copy_bytes=ram * BLOB,
        fill_batches=-(-slots // 64), depth=draw(st.integers(1, 3)), cached_share=draw(st.sampled_from([0.0, 0.4])),
    )  # fmt: skip


RATES = [
    "drive__direct", "drive__faults", "drive__cached", "gpu__bandwidth", "gpu__flops", "gpu__pcie", "cpu__bandwidth", "cpu__flops",
]  # fmt: skip


def load_of(changes: dict[str, Any]) -> Any:
    """`cached_share` is the start's; `direct` the prompt's and the reply's."""
    found = load(**changes)
    return dataclasses.replace(found, reply=dataclasses.replace(found.reply, direct=changes["direct"]))


@settings(deadline=None, max_examples=40)
@given(loads(), st.sampled_from(RATES), st.floats(1, 100))
def test_a_faster_link_is_never_slower(changes: dict[str, Any], rate: str, times: float) -> None:
    pc = laptop()
    group, name = rate.split("__")
    faster = laptop(**{rate: getattr(getattr(pc, group), name) * times})
    slow, fast = (predict(PACK, one, load_of(changes)) for one in (pc, faster))
    assert fast.start.ready_s <= slow.start.ready_s * (1 + 1e-9)
    assert fast.prompt.seconds <= slow.prompt.seconds * (1 + 1e-6)
    assert fast.reply.round.seconds <= slow.reply.round.seconds * (1 + 1e-9)


@settings(deadline=None, max_examples=40)
@given(loads(), st.integers(0, 4000), st.integers(0, 8 << 30))
def test_more_slots_or_more_page_cache_are_never_slower(changes: dict[str, Any], slots: int, cache: int) -> None:
    found = load_of(changes)
    slots = min(slots, found.tiers.file_blobs)
    tiers = dataclasses.replace(
        found.tiers,
        vram_slots=found.tiers.vram_slots + slots,
        file_blobs=found.tiers.file_blobs - slots,
        cache_bytes=found.tiers.cache_bytes + cache,
    )
    simulator = Simulator(PACK, laptop())
    less, more = simulator.predict(found), simulator.predict(dataclasses.replace(found, tiers=tiers))
    assert more.prompt.seconds <= less.prompt.seconds * (1 + 1e-6)
    assert more.reply.round.seconds <= less.reply.round.seconds * (1 + 1e-6)


@settings(deadline=None, max_examples=40)
@given(loads())
def test_no_resource_is_busy_for_longer_than_it_takes(changes: dict[str, Any]) -> None:
    found, pc = predict(PACK, laptop(), load_of(changes)), laptop()
    assert pc.gpu is not None
    rate = pc.drive.direct if changes["direct"] else pc.drive.faults
    assert found.prompt.seconds >= found.prompt.bytes.drive / rate * (1 - 1e-6)
    assert found.prompt.seconds >= found.prompt.bytes.staged / pc.gpu.pcie * (1 - 1e-6)
    assert all(busy <= found.prompt.seconds * (1 + 1e-6) for busy in found.prompt.busy_s)
    assert all(busy <= found.reply.round.seconds * (1 + 1e-6) for busy in found.reply.busy_s)


@settings(deadline=None, max_examples=30)
@given(loads(), st.integers(1, 20))
def test_layer_major_uses_no_more_bytes_than_chunked(changes: dict[str, Any], chunks: int) -> None:
    plain = changes | dict(super_chunk=None, prefetch=False, direct=True)
    major = plain | dict(super_chunk=changes["chunk"] * chunks)
    a, b = (predict(PACK, laptop(), load_of(one)).prompt.bytes for one in (plain, major))
    assert b.drive <= a.drive * (1 + 1e-9) and b.staged <= a.staged * (1 + 1e-9)


def test_a_plan_of_the_long_prompt_takes_few_steps() -> None:
    found = list(groups(load(tokens=223_706).prompt))
    assert len(found) < 40 and found[0].first == 0 and found[-1].last == 223_706
    assert sum(group.count for group in found) == -(-223_706 // 512)
    assert all(a.last == b.first for a, b in zip(found, found[1:], strict=False))


def test_grouped_passes_take_what_single_ones_take(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = dict(tokens=512 * 60 + 7, cache_bytes=22 << 30)
    grouped = timed(**changes).prompt  # type: ignore[arg-type]
    monkeypatch.setattr("strata_recipes.simulate.prefill.SINGLE", 1000)
    single = timed(**changes).prompt  # type: ignore[arg-type]
    assert grouped.seconds == pytest.approx(single.seconds, rel=0.01)
    assert grouped.bytes.drive == pytest.approx(single.bytes.drive, rel=0.01)
    assert grouped.bytes.staged == pytest.approx(single.bytes.staged, rel=1e-9)


@pytest.mark.parametrize("rate", RATES)
def test_every_rate_counts(rate: str) -> None:
    pc = laptop()
    group, name = rate.split("__")
    pc = dataclasses.replace(pc, gpu=None) if rate == "cpu__flops" else pc
    slower = dataclasses.replace(pc, **{group: dataclasses.replace(getattr(pc, group), **{name: getattr(getattr(pc, group), name) / 8})})
    more: dict[str, Any] = dict(vram_slots=5000, ram_blobs=5000, file_blobs=14_576, cache_bytes=10**10, copy_bytes=5000 * BLOB)
    more |= dict(strategy="unbuffered", direct=True) if name == "direct" else {}
    more |= dict(tokens=300_000, chunk=4096) if name == "flops" else {}
    assert timed(slower, **more).total_s > timed(pc, **more).total_s


def test_a_warm_cache_helps_and_a_full_one_helps_most() -> None:
    speeds = [timed(cache_bytes=size * 10**9).prediction.prefill_tokens_per_s for size in (0, 10, 20, 30, 35, 50)]
    assert speeds == sorted(speeds) and speeds[0] < speeds[3] and speeds[4] == speeds[5]


def test_efficiency_and_drafts_and_locality_count() -> None:
    half = dataclasses.replace(laptop(), efficiency=Efficiency(0.01, 0.1))
    whole = laptop()
    assert timed(half).prompt.seconds > timed(whole).prompt.seconds
    assert timed(half).reply.round.seconds > timed(whole).reply.round.seconds
    assert timed(drafted=4, tokens_a_round=2.5).prediction.decode_tokens_per_s != timed().prediction.decode_tokens_per_s
    repeats = timed(locality=0.3, cache_bytes=10**10).prediction
    assert repeats.decode_tokens_per_s > timed(cache_bytes=10**10).prediction.decode_tokens_per_s


def test_ranked_slots_hit_more_than_unranked() -> None:
    hot, plain = (timed(vram_slots=4915, file_blobs=19_661, ranked=ranked).vram_hit_share for ranked in (True, False))
    assert hot == pytest.approx(0.786, abs=0.01) and plain == pytest.approx(0.2, abs=0.001)


def test_a_cache_with_locality_holds_what_a_peer_measured() -> None:
    """56, 84 and 92 % of choices in a cache of 5, 20 and 36 %: the hottest's share, and of the rest those that repeat."""
    for share, seen in ((0.05, 0.56), (0.20, 0.84), (0.36, 0.92)):
        hit = timed(vram_slots=int(24_576 * share), file_blobs=24_576 - int(24_576 * share)).vram_hit_share
        assert hit + 0.3 * (1 - hit) == pytest.approx(seen, abs=0.04)


# machines


def test_without_a_gpu_the_processor_does_it() -> None:
    pack, pc = small_index(), machine(None)
    base = load(file_blobs=0, ram_blobs=96, tokens=100, new_tokens=10)
    fast = dataclasses.replace(pc, cpu=dataclasses.replace(pc.cpu, flops=pc.cpu.flops * 10))
    assert predict(pack, fast, base).total_s < predict(pack, pc, base).total_s


def test_lowest_ram_by_hand() -> None:
    def lowest(os: str, strategy: str) -> float:
        pc: Machine = dataclasses.replace(laptop(), os=os)
        sizes = dict(fill_bytes=12 << 30, copy_bytes=5 << 30, start_bytes=1 << 30)
        return timed(pc, strategy=strategy, **sizes).ram.lowest_available_bytes / (1 << 30)

    assert [lowest("linux", "mapped"), lowest("windows", "mapped"), lowest("windows", "unbuffered")] == [18.0, 11.0, 18.0]


def test_no_new_tokens_take_no_time() -> None:
    none, some = timed(new_tokens=0), timed(new_tokens=100)
    assert none.total_s < some.total_s and none.prediction.decode_tokens_per_s > 0


def test_the_same_load_gives_the_same_prediction_in_any_order() -> None:
    simulator = Simulator(PACK, laptop())
    many = [load(tokens=tokens, vram_slots=slots, file_blobs=24_576 - slots) for tokens in (100, 5000) for slots in (0, 3000)]
    forward = [simulator.predict(one).prediction for one in many]
    backward = [Simulator(PACK, laptop()).predict(one).prediction for one in reversed(many)]
    assert forward == backward[::-1]
    assert all(float(f"{one.prefill_s:.9g}") == one.prefill_s for one in forward)


def test_the_models_operations_are_its_parameters() -> None:
    """Two a weight that a token meets; layers in blocks of four, the one with the n-gram table first."""
    work = work_of(PACK)
    assert [count for count, _ in work.blocks] == [1, 11] and sum(len(block) * count for count, block in work.blocks) == 48
    chosen = 48 * 10 * 3 * 2560 * 640
    assert work.token_ops() == pytest.approx(2 * (sum(layer.values for layer in work.layers) + chosen))
    assert work_of(index_of("synthetic")).blocks[-1][0] >= 1


def test_keys_and_values_across_the_link_cost_a_reply_their_bytes() -> None:
    """Of 262,144 tokens an eighth lies on the card: seven eighths of 2,048 selected cells a layer come over PCIe for each token."""
    pc = laptop(gpu__pcie=1e9)
    near, far = (timed(pc, tokens=262_000, new_tokens=1, kv_format="int8", resident=resident) for resident in (None, 32_750))
    rates = [found.prediction.decode_tokens_per_s for found in (near, far)]
    seconds = 1 / rates[1] - 1 / rates[0]
    assert seconds == pytest.approx(12 * 2048 * 1056 * 7 / 8 / 1e9, rel=0.05)
