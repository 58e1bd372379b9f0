"""A small plan and its measurements, made up by hand."""

from __future__ import annotations

import pytest

from strata_recipes.machine.facts import Cpu, Drive, Gpu, Machine
from strata_recipes.plan import plan as p
from strata_recipes.results.metrics import DecodeMetrics, EmulatedMetrics, Metrics, PredictedMetrics, PrefillMetrics, StartupMetrics
from strata_recipes.units import GiB, MiB


@pytest.fixture
def plan() -> p.Plan:
    return p.Plan(
        version=1,
        hardware="rtx3060_6gb",
        os="linux",
        model=p.ModelPlan("demo", "00ff", "cache", 1.0),
        vram_slots=100,
        ram_blobs=200,
        file_blobs=84,
        vram=p.Budget("vram", 6 * GiB, "6.00 GiB less reserve", (p.Share("expert slots", 3 * GiB),)),
        ram=p.Budget("ram", 10 * GiB, "stated", (p.Share("expert blobs", GiB // 2),)),
        experts=p.ExpertsPlan("budget", "expert id, then layer", 100, 200, 84, "buffered", 0, False),
        startup=p.StartupPlan("mapped", 100, 200),
        prefill=p.PrefillPlan("chunked", 512, 13, 512),
        decode=p.DecodePlan("greedy", 64, True, 0.0, 0, 1.0, 0),
        kv=p.KvPlan("fp32", 1024, MiB),
        compute=p.ComputePlan("f32", 2, "cuda"),
        workload=p.WorkloadPlan("text", "auto", "abcd", 0),
        output=p.OutputPlan("none"),
        emulate=("VRAM by an arena in RAM",),
        throttle=None,
        predicted=p.Prediction(1.5, 0.5, 300.0, 30.0),
        decisions=(p.Decision("experts.mode", "budget", "fits"),),
        notes=(),
    )


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(
        ready_s=2.25,
        startup=StartupMetrics(strategy="mapped", fill_s=0.5, fill_bytes=300 * MiB, copy_s=1.0, copy_bytes=2 * GiB),
        prefill=PrefillMetrics(order="chunked", tokens=13, seconds=0.125, tokens_per_s=104.0),
        decode=DecodeMetrics(tokens=64, seconds=2.0, tokens_per_s=32.0, vram_hits=50, ram_hits=30, file_hits=20),
        predicted=PredictedMetrics(1.5, 300.0, 30.0),
        emulated=EmulatedMetrics(("gpu.vram", "ram"), ("VRAM by an arena in RAM",)),
    )


@pytest.fixture
def machine() -> Machine:
    return Machine(
        name="rtx3060_6gb",
        os="linux",
        ram_bytes=64 * GiB,
        ram_available_bytes=50 * GiB,
        cpu=Cpu(8, 40e9, 1e11),
        gpu=Gpu("RTX 3060", "8.6", 6 * GiB, 6 * GiB, 336e9, 5e13, 12e9),
        drive=Drive(3e9, 1e9, 8e9),
        probed=frozenset({"cpu.cores", "drive.direct", "gpu.flops (estimated)"}),
    )
