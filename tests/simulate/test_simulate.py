"""Predicted times: by hand where one rate decides, and monotone in every rate."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from strata_recipes.machine.facts import Machine
from strata_recipes.simulate.routing import Routing, Weights
from strata_recipes.simulate.simulate import Load, Timed, predict
from strata_recipes.simulate.startup import StartLoad, startup_s
from tests.plan.cases import composed, index_of, machine, small_index

PACK = index_of("qwen38_flash_next_q2_0")
BLOB = 1_382_400


def load(**changes: Any) -> Load:
    base: dict[str, Any] = dict(
        vram_slots=0, ram_blobs=0, file_blobs=24_576, start=StartLoad("mapped", 0, 0, 0.0, 0.0), file_io="buffered", cache_bytes=0,
        ranked=True, skew=0.45, prompt_tokens=12_900, chunk=512, new_tokens=256, kv_format="q4_0",
    )  # fmt: skip
    return Load(**(base | changes))


def laptop() -> Machine:
    return composed("hardware=rtx3060_6gb")[1]


def timed(pc: Machine | None = None, **changes: Any) -> Timed:
    return predict(PACK, pc or laptop(), load(**changes))


def test_ready_by_hand() -> None:
    pc = laptop()
    fill, copy = 2_000 * BLOB, 5_000 * BLOB
    expected = (PACK.dense_bytes + fill) * (1 / 0.5e9 + 1 / 6.5e9) + copy * (1 / 0.5e9 + 1 / 40e9)
    assert timed(pc, start=StartLoad("mapped", fill, copy, 0.0, 0.0)).prediction.ready_s == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("strategy", "share", "purge_s", "a_byte"),
    [("mapped", 0.0, 9.0, 1 / 0.5e9), ("mapped", 0.25, 9.0, 0.25 / 10e9 + 0.75 / 0.5e9), ("unbuffered", 0.25, 1.5, 1 / 2.7e9)],
)
def test_a_start_by_hand(strategy: str, share: float, purge_s: float, a_byte: float) -> None:
    """Cached pages help the mapped start alone; the purge costs the unbuffered one alone."""
    found = startup_s(laptop(), StartLoad(strategy, 3 * 10**9, 5 * 10**9, share, purge_s))
    first = purge_s if strategy == "unbuffered" else 0.0
    assert found == pytest.approx(first + 8e9 * a_byte + 3e9 / 6.5e9 + 5e9 / 40e9, rel=1e-9)
    assert startup_s(laptop(), StartLoad(strategy, 0, 0, share, purge_s)) == 0.0


def test_decode_from_ram_by_hand() -> None:
    """480 experts a token over RAM, PCIe; the dense weights once; little else."""
    pc = laptop()
    found = timed(pc, ram_blobs=24_576, file_blobs=0, prompt_tokens=1, new_tokens=1).prediction
    experts = 480 * BLOB * (1 / 40e9 + 1 / 6.5e9)
    dense = (PACK.dense_bytes - 675_430_400) / 336e9
    assert 1 / found.decode_tokens_per_s == pytest.approx(experts + dense, rel=0.02)


def test_the_bytes_of_the_reports_base_order() -> None:
    """509 GB of expert bytes for 12.9K tokens in chunks of 512: direct reads of all of them tell the sum."""
    pc = laptop()
    assert pc.gpu is not None
    pc = dataclasses.replace(pc, drive=dataclasses.replace(pc.drive, direct=1e9), gpu=dataclasses.replace(pc.gpu, pcie=1e18, flops=1e30))
    seconds = timed(pc, file_io="direct").prediction.prefill_s
    assert seconds == pytest.approx(509, rel=0.06)


def test_a_warm_cache_helps_and_a_full_one_helps_most() -> None:
    speeds = [timed(cache_bytes=size * 10**9).prediction.prefill_tokens_per_s for size in (0, 10, 20, 30, 34, 50)]
    assert speeds == sorted(speeds) and speeds[0] < speeds[3] and speeds[4] == speeds[5]


def test_ranked_slots_hit_more_than_unranked() -> None:
    hot, plain = (timed(vram_slots=4915, file_blobs=19_661, ranked=ranked).vram_hit_share for ranked in (True, False))
    assert hot == pytest.approx(0.786, abs=0.01) and plain == pytest.approx(0.2, abs=0.001)


RATES = ["cpu.bandwidth", "cpu.flops", "drive.faults", "drive.cached", "drive.direct", "gpu.bandwidth", "gpu.flops", "gpu.pcie"]


@pytest.mark.parametrize("rate", RATES)
def test_every_rate_counts(rate: str) -> None:
    pc = laptop()
    group, name = rate.split(".")
    part = getattr(pc, group)
    slower = dataclasses.replace(pc, **{group: dataclasses.replace(part, **{name: getattr(part, name) / 2})})
    io = "direct" if name == "direct" else "buffered"
    more: dict[str, Any] = dict(
        vram_slots=5000,
        ram_blobs=5000,
        file_blobs=14_576,
        start=StartLoad("mapped", 0, 5000 * BLOB, 0.0, 0.0),
        file_io=io,
        cache_bytes=10**10,
    )
    assert timed(slower, **more).total_s > timed(pc, **more).total_s


def test_without_a_gpu_the_processor_does_it() -> None:
    pack = small_index()
    pc = machine(None)
    base = load(file_blobs=0, ram_blobs=96, prompt_tokens=100, new_tokens=10)
    fast = dataclasses.replace(pc, cpu=dataclasses.replace(pc.cpu, flops=pc.cpu.flops * 10))
    assert predict(pack, fast, base).total_s < predict(pack, pc, base).total_s


@pytest.mark.parametrize(("tokens", "chunk"), [(1, 512), (511, 512), (512, 512), (513, 512), (223_706, 1), (223_706, 512)])
def test_a_long_prompt_takes_no_more_sums_than_a_short_one(tokens: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are counted, not walked."""
    calls: list[int] = []
    touched = Routing.touched

    def counted(self: Routing, held: Weights, num_tokens: int) -> float:
        calls.append(num_tokens)
        return touched(self, held, num_tokens)

    monkeypatch.setattr(Routing, "touched", counted)
    assert timed(prompt_tokens=tokens, chunk=chunk).prediction.prefill_s > 0
    assert len(calls) == 11


def test_no_new_tokens_take_no_time() -> None:
    none, some = timed(new_tokens=0), timed(new_tokens=100)
    assert none.total_s < some.total_s
    assert none.prediction.decode_tokens_per_s > 0


def test_a_layer_major_pass_reads_what_it_touches_once() -> None:
    """Direct reads of all experts tell the sum: 25 passes of 59 % in chunked order, one of 79 % for the whole prompt."""
    pc = laptop()
    assert pc.gpu is not None
    pc = dataclasses.replace(
        pc, drive=dataclasses.replace(pc.drive, direct=1e9), gpu=dataclasses.replace(pc.gpu, pcie=1e18, flops=1e30, bandwidth=1e18)
    )
    whole = timed(pc, file_io="direct", super_chunk=13_312).prediction.prefill_s
    assert whole == pytest.approx(0.79 * 33.97, rel=0.02)
    halves = timed(pc, file_io="direct", super_chunk=6_656, prompt_tokens=13_312).prediction.prefill_s
    assert whole < halves < 2 * whole
    one = timed(pc, file_io="direct", super_chunk=512, prompt_tokens=512).prediction
    assert one == timed(pc, file_io="direct", prompt_tokens=512).prediction  # a super-chunk of one chunk is chunked order


def test_residual_streams_cross_the_link_once_a_layer_each_way() -> None:
    near, far = (timed(super_chunk=13_312, streams_cross=cross).prediction.prefill_s for cross in (False, True))
    streams = 12_900 * 48 * 4 * 2560 * 4
    assert far - near == pytest.approx(streams * (1 / 6.5e9 - 2 / 336e9), rel=1e-5)
