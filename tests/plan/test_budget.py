"""Sizes of state, buffers and dense weights, against sums done by hand from the published shapes."""

from __future__ import annotations

import pytest

from strata_recipes.plan.budget import (
    BUFFERS,
    DENSE,
    EMBEDDING,
    KV,
    RING,
    Demand,
    buffer_parts,
    far_kv_bytes,
    fixed_parts,
    kv_cell_bytes,
    state_bytes,
    state_parts,
    total,
)
from tests.plan.cases import index_of, small_geometry, small_index


@pytest.mark.parametrize(("kv_format", "cell"), [("fp32", 4096), ("fp16", 2048), ("int8", 1056), ("q4_0", 576)])
def test_a_cell_of_the_real_model_has_the_published_bytes(kv_format: str, cell: int) -> None:
    assert kv_cell_bytes(index_of("qwen38_flash_next_q2_0").geometry, kv_format) == cell


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="fp8"):
        kv_cell_bytes(small_geometry(), "fp8")


def test_the_state_of_262144_tokens_by_hand() -> None:
    g = index_of("qwen38_flash_next_q2_0").geometry
    parts = {p.name: p.num_bytes for p in state_parts(g, "int8", 262_144)}
    assert parts[KV] == 12 * 262_144 * 1056
    assert far_kv_bytes(g, "int8", 262_144, 32_768) == 12 * 229_376 * 1056
    assert far_kv_bytes(g, "int8", 262_144, None) == far_kv_bytes(g, "int8", 262_144, 262_144) == 0
    assert parts["index keys"] == 12 * (65_536 + 4) * 128 * 4
    assert parts["recurrent state"] == 36 * 48 * 128 * 128 * 4
    assert parts["convolution state"] == 36 * 3 * 10_240 * 4 + 9 * 10_240 * 4
    assert parts["n-gram history"] == 2 * 8
    assert len(parts) == 5


@pytest.mark.parametrize("context", [1, 63, 64, 65, 4096])
def test_the_one_figure_is_the_sum_of_its_parts_and_grows(context: int) -> None:
    g = small_geometry()
    assert state_bytes(g, "fp16", context) == total(state_parts(g, "fp16", context))
    assert state_bytes(g, "fp16", context + 1) - state_bytes(g, "fp16", context) >= 2 * 2 * 32 * 2


def test_buffers_grow_with_rows_and_logits_rows() -> None:
    g = small_geometry()
    none, one, two = (total(buffer_parts(g, rows, 512, 0)) for rows in (0, 1, 2))
    assert none == 6 * 16 * 16 * 4  # a recurrent state on its way
    assert two - none == 2 * (one - none)
    assert total(buffer_parts(g, 1, 512, 3)) - one == 3 * 300 * 4


def test_buffers_of_the_real_model_are_near_the_public_engines() -> None:
    """686 KiB a token and 96 MiB, by its allocation list: ours must be of that order."""
    buffers = total(buffer_parts(index_of("qwen38_flash_next_q2_0").geometry, 512, 262_144, 1))
    assert 0.7 * 686 * 1024 * 512 < buffers < 1.5 * (686 * 1024 * 512 + (96 << 20))


def test_dense_weights_of_the_real_model() -> None:
    pack = index_of("qwen38_flash_next_q2_0")
    fixed = fixed_parts(pack, Demand("cuda", "f32", "fp16", 512, 512, 1))
    vram, ram = ({p.name: p.num_bytes for p in parts} for parts in (fixed.vram, fixed.ram))
    assert ram[EMBEDDING] == 248_320 * 2560 // 32 * 34
    padding = vram[DENSE] + ram[EMBEDDING] - pack.dense_bytes
    assert 0 <= padding < 256 * len(pack.dense)
    assert pack.dense_bytes == pytest.approx(39.4e9 - 33.97e9, rel=0.02)  # the public writer's file
    assert vram[RING] == 16 * 1_382_400


def test_cells_beyond_the_resident_ones_lie_in_ram() -> None:
    pack = small_index()
    whole, cut = (fixed_parts(pack, Demand("cuda", "f32", "int8", 512, 64, 1, resident=resident)) for resident in (None, 100))
    far = len(pack.geometry.attention_layers) * 412 * kv_cell_bytes(pack.geometry, "int8")
    assert total(whole.vram) - total(cut.vram) == total(cut.ram) - total(whole.ram) == far
    assert next(p.num_bytes for p in cut.ram if p.name == KV) == far
    alone = (fixed_parts(pack, Demand("cpu", "f32", "int8", 512, 64, 1, resident=resident)) for resident in (None, 100))
    assert len(set(alone)) == 1


def test_without_a_gpu_everything_lies_in_ram_and_expanded() -> None:
    pack = small_index()
    gpu, cpu = (fixed_parts(pack, Demand(device, "f32", "fp16", 512, 64, 1)) for device in ("cuda", "cpu"))
    half = fixed_parts(pack, Demand("cpu", "bf16", "fp16", 512, 64, 1))
    assert cpu.vram == () and {BUFFERS, DENSE, EMBEDDING} <= {p.name for p in cpu.ram}
    dense = [next(p.num_bytes for p in parts if p.name == DENSE) for parts in (gpu.vram, cpu.ram, half.ram)]
    assert dense[1] == 2 * dense[2] > dense[0]
