"""Predicted against measured where the drive decides: real runs of a small pack on a drive held to a slow rate, as ratios between arms.

Both arms of a ratio run on the same box within seconds, and wait for the held drive for most of their time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from strata_recipes.config.compose import compose_config
from strata_recipes.decide import Decided, decide
from strata_recipes.engine.session import Session
from strata_recipes.files.residency import drop_cached
from strata_recipes.machine.probe import resolve_hardware
from strata_recipes.modes.models import write_pack
from strata_recipes.pack.reader import Pack, open_pack

CHUNK, TOKENS = 8, 40
MODEL = (
    "model=synthetic", "model.geometry.num_layers=2", "model.geometry.hidden=256", "model.geometry.num_experts=32",
    "model.geometry.top_k=4", "model.geometry.expert_width=256", "model.experts=[{layers:2,gate:F32,up:F32,down:F32}]",
)  # fmt: skip
SLOW = (
    "hardware=cpu", "hardware.ram=4GiB", "hardware.available=2GiB", "hardware.headroom=0", "hardware.drive.direct=20MB/s",
    "hardware.drive.faults=10MB/s", "hardware.drive.cached=5GB/s", "hardware.drive.cached_share=0", "hardware.cpu.cores=2",
    "hardware.cpu.bandwidth=4GB/s", "emulate.links=throttle", "workload=synthetic", f"workload.tokens={TOKENS}", f"prefill.chunk={CHUNK}",
    "decode.max_new_tokens=4", "compute.threads=1",  # more would wait for each other by spinning on a busy box
)  # fmt: skip


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pack]:
    folder = tmp_path_factory.mktemp("held") / "pack"
    write_pack(compose_config([*MODEL]).model, folder)
    with open_pack(folder) as opened:
        yield opened


def decided(pack: Pack, *words: str) -> Decided:
    config = compose_config([*MODEL, *SLOW, *words])
    hardware, machine = resolve_hardware(config.hardware, Path())
    return decide(dataclasses.replace(config, hardware=hardware), machine, pack.index, TOKENS, order=pack.order())


def prompt_seconds(pack: Pack, *words: str) -> tuple[float, float, float, float]:
    """Predicted and measured seconds, then bytes, of the second of two prompts: the first compiles kernels."""
    found = decided(pack, "experts=mapped", "experts.file_io=direct", *words)
    ids = np.random.default_rng(7).integers(0, pack.index.geometry.vocab, TOKENS)
    with Session(found.plan, pack, order=pack.order()) as session:
        session.prompt(ids[: 2 * CHUNK])
        read = session.prompt(ids).figures
    return found.timed.prompt.seconds, read.seconds, found.timed.prompt.bytes.drive, float(read.expert_bytes_read)


def start_seconds(pack: Pack, strategy: str) -> tuple[float, float]:
    """The faster of two: what else the box does only adds."""
    found = decided(pack, "experts=resident", f"startup={strategy}", "hardware.drive.direct=40MB/s", "hardware.drive.faults=20MB/s")
    seconds = []
    for _ in range(2):
        drop_cached(pack.experts_path)
        with Session(found.plan, pack, order=pack.order()) as session:
            figures = session.started.figures
        assert figures.strategy == strategy and figures.fallback is None
        seconds.append(figures.fill_s + figures.copy_s)
    return found.timed.start.moved_s, min(seconds)


def test_layer_major_over_chunked_is_as_predicted(pack: Pack) -> None:
    chunked, major = (
        prompt_seconds(pack, "prefill=chunked"),
        prompt_seconds(pack, "prefill=layer_major", "prefill.super_chunk=whole", "prefill.prefetch=false"),
    )
    assert chunked[0] / major[0] == pytest.approx(chunked[1] / major[1], rel=0.2)
    assert chunked[2] / major[2] == pytest.approx(chunked[3] / major[3], rel=0.2)
    assert chunked[1] > 2 * major[1]


def test_a_mapped_over_an_unbuffered_start_is_as_predicted(pack: Pack) -> None:
    mapped, unbuffered = start_seconds(pack, "mapped"), start_seconds(pack, "unbuffered")
    assert mapped[0] / unbuffered[0] == pytest.approx(mapped[1] / unbuffered[1], rel=0.2)
