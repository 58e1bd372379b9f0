"""Predicted against real runs of a small pack where the drive decides, as ratios between arms: all bytes are read, by a clock of its own.

Time passes only where the held drive is waited for, so no busy box changes a figure. By the real clock: benchmarks/predicted.py.
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
    "decode.max_new_tokens=4", "compute.threads=1",
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("links_own_clock")


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
    """Predicted and measured seconds, then bytes, of a prompt."""
    found = decided(pack, "experts=mapped", "experts.file_io=direct", *words)
    ids = np.random.default_rng(7).integers(0, pack.index.geometry.vocab, TOKENS)
    with Session(found.plan, pack, order=pack.order()) as session:
        read = session.prompt(ids).figures
    return found.timed.prompt.seconds, read.seconds, found.timed.prompt.bytes.drive, float(read.expert_bytes_read)


def start_seconds(pack: Pack, strategy: str) -> tuple[float, float]:
    """Predicted and measured, of a file that the page cache does not hold."""
    found = decided(pack, "experts=resident", f"startup={strategy}", "hardware.drive.direct=40MB/s", "hardware.drive.faults=20MB/s")
    drop_cached(pack.experts_path)
    with Session(found.plan, pack, order=pack.order()) as session:
        figures = session.started.figures
    assert figures.strategy == strategy and figures.fallback is None
    return found.timed.start.moved_s, figures.fill_s + figures.copy_s


def test_layer_major_over_chunked_is_as_predicted(pack: Pack) -> None:
    chunked, major = (
        prompt_seconds(pack, "prefill=chunked"),
        prompt_seconds(pack, "prefill=layer_major", "prefill.super_chunk=whole", "prefill.prefetch=false"),
    )
    assert chunked[0] / major[0] == pytest.approx(chunked[1] / major[1], rel=0.1)
    assert chunked[2] / major[2] == pytest.approx(chunked[3] / major[3], rel=0.1)
    assert chunked[1] > 2 * major[1]


def test_a_mapped_over_an_unbuffered_start_is_as_predicted(pack: Pack) -> None:
    mapped, unbuffered = start_seconds(pack, "mapped"), start_seconds(pack, "unbuffered")
    assert mapped[0] / unbuffered[0] == pytest.approx(mapped[1] / unbuffered[1], rel=0.1)
