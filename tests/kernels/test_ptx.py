"""The instructions that speed rests on are in the PTX, for the GPUs of today; nothing spills into local memory. Needs no GPU."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernels_numba.endings import Gates, Mixed
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.attention_decode import back_kernel, gather_kernel
from kernels_numba.gpu.attention_inputs import inputs_kernel
from kernels_numba.gpu.attention_part import part_kernel
from kernels_numba.gpu.decode_experts import combine_kernel, pair_kernel, route_kernel
from kernels_numba.gpu.delta_chunks import delta_kernel
from kernels_numba.gpu.delta_decode import conv_kernel, norm_kernel, step_kernel
from kernels_numba.gpu.dense_matvec import dense_kernel
from kernels_numba.gpu.dense_matvec_q8 import dense_q8_kernel
from kernels_numba.gpu.dequantize import parts_kernel
from kernels_numba.gpu.endings import apart, finish
from kernels_numba.gpu.float_products import float_cut
from kernels_numba.gpu.gather_blobs import blobs_kernel
from kernels_numba.gpu.grouped_f32 import f32_kernel
from kernels_numba.gpu.grouped_mma import mma_kernel
from kernels_numba.gpu.hyper_connection import inject_kernel
from kernels_numba.gpu.index_decode import append_kernel, queries_kernel
from kernels_numba.gpu.index_decode import scores_kernel as scores_at_kernel
from kernels_numba.gpu.index_scores import scores_kernel
from kernels_numba.gpu.kv_store import store_kernel
from kernels_numba.gpu.matvec import matvec_kernel
from kernels_numba.gpu.matvec_q8 import fitting, matvec_q8_kernel
from kernels_numba.gpu.moe import scatter_add_kernel, shared_init_kernel, silu_kernel
from kernels_numba.gpu.quantize_rows import quantize_kernel
from kernels_numba.gpu.route_topk import topk_kernel
from kernels_numba.gpu.select_blocks import select_kernel
from kernels_numba.gpu.selected_attention import attention_kernel
from kernels_numba.gpu.teams import Stored, cut
from tests.kernels.ptx_text import CAPABILITIES, needs_toolkit, ptx

pytestmark = needs_toolkit
every_capability = pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda c: f"sm_{c[0]}{c[1]}")
oldest_and_newest = pytest.mark.parametrize("capability", [(8, 6), (12, 0)], ids=lambda c: f"sm_{c[0]}{c[1]}")


@oldest_and_newest
def test_the_8_bit_matvec_has_dp4a_and_wide_loads(capability: tuple[int, int]) -> None:
    for name in ("Q2_0", "Q8_0"):
        shape = fitting(name, 640, 2560, True, 1, 512)
        text = ptx(matvec_q8_kernel(name, shape, True, 16), capability)
        assert text.count("dp4a.s32.s32") >= 8
        assert "ld.global.nc.v4.u32" in text  # 16 bytes of codes
        assert "ld.shared.v4.u32" in text  # 16 activations
        assert ".local" not in text


@oldest_and_newest
def test_the_grouped_matmul_has_tensor_core_instructions(capability: tuple[int, int]) -> None:
    text = ptx(mma_kernel(("Q2_0", "Q2_0"), 640, 2560, "bf16", True, (16, 16)), capability)
    assert text.count("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") == 32  # 64 inputs of a warp's 32 x 32
    assert text.count("ldmatrix.sync.aligned.m8n8.x4.shared.b16") == 16
    assert "cp.async.cg.shared.global" in text
    assert "st.shared.v4.b32" in text
    assert ".local" not in text


def test_f16_uses_the_f16_instruction() -> None:
    text = ptx(mma_kernel(("Q8_0",), 128, 256, "f16", False, (2,)), (8, 6))
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in text
    assert "bf16" not in text


@every_capability
@pytest.mark.parametrize("name", ["Q2_0", "IQ3_S", "Q4_K"])
def test_dequantize_stores_16_bytes(name: str, capability: tuple[int, int]) -> None:
    text = ptx(parts_kernel(name, "bf16", True, 16), capability)
    assert f".target sm_{capability[0]}{capability[1]}" in text
    assert "st.global.v4.u32" in text
    assert "cvt.rn.bf16x2.f32" in text


def test_codes_become_floats_without_conversion_instructions() -> None:
    """One of those takes four times as long as a byte pick and a subtraction."""
    assert "cvt.rn.f32.s" not in ptx(parts_kernel("Q2_0", "bf16", True, 16), (9, 0))


@pytest.mark.parametrize("name", list(FORMATS))
def test_nothing_lies_in_local_memory(name: str) -> None:
    for planar in (False, True):
        assert ".local" not in ptx(parts_kernel(name, "f32", planar, 2 if not planar else 16), (9, 0))
    assert ".local" not in ptx(matvec_kernel(name, 640, 256, float_cut(256, 640), 8, True, 16), (9, 0))


def test_plain_blocks_at_odd_places_are_not_loaded_wide() -> None:
    text = ptx(parts_kernel("Q8_0", "f32", False, 2), (8, 6))
    assert "ld.global.nc.u16" in text
    assert not re.search(r"ld\.global\.nc\.(v2|v4|u32|u64)", text)


@pytest.mark.parametrize(("kv_format", "capability"), [("fp16", (8, 6)), ("fp32", (9, 0)), ("fp16", (12, 0))])
def test_selected_attention_multiplies_a_loaded_key_with_every_head(kv_format: str, capability: tuple[int, int]) -> None:
    text = ptx(attention_kernel(12, 256, kv_format, 4, 4, False), capability)
    assert text.count("fma.rn.f32") >= 2 * 8 * 12 + 2 * 4 * 12  # eight values of two keys, two values of four
    assert text.count("ld.global.nc.v4") >= 2
    assert text.count("ld.shared.v4") == 2 * 12 + 12
    assert ".local" not in text


@pytest.mark.parametrize(("kv_format", "word", "is_split"), [("int8", "v2.u32", True), ("q4_0", "u32", False)])
def test_codes_of_keys_are_loaded_eight_at_once_and_never_converted(kv_format: str, word: str, is_split: bool) -> None:
    text = ptx(attention_kernel(12, 256, kv_format, 4, 4, is_split), (8, 6))
    assert text.count("fma.rn.f32") >= 2 * 8 * 12 + 2 * 4 * 12
    assert text.count(f"ld.global.nc.{word}") >= 2
    assert text.count("prmt.b32") >= 2 * 8 and "cvt.rn.f32.s" not in text
    assert ".local" not in text


@pytest.mark.parametrize("dim", [72, 256])
@pytest.mark.parametrize("kv_format", ["fp32", "fp16", "int8", "q4_0"])
def test_a_row_is_rounded_without_local_memory(kv_format: str, dim: int) -> None:
    text = ptx(store_kernel(kv_format, dim, dim == 72), (8, 6))
    assert ".local" not in text
    assert ("shfl.sync.bfly" in text) == (kv_format in ("int8", "q4_0"))  # a group's scale is found by a warp
    assert "fma" not in text and "div.approx" not in text


@pytest.mark.parametrize("capability", [(8, 6), (12, 0)])
def test_delta_chunks_copies_in_the_background_and_keeps_its_state_in_registers(capability: tuple[int, int]) -> None:
    text = ptx(delta_kernel(128), capability)
    assert text.count("cp.async.cg.shared.global") >= 8
    assert text.count("fma.rn.f32") >= 64 + 32  # four state rows times 4 x 4 sums, a token's 8 x 4
    assert ".local" not in text


@pytest.mark.parametrize("capability", [(8, 6), (12, 0)])
def test_index_scores_multiply_8_by_8(capability: tuple[int, int]) -> None:
    text = ptx(scores_kernel(4, 128), capability)
    assert text.count("fma.rn.f32") >= 16 * text.count("ld.shared.v4") >= 64
    assert ".local" not in text


@oldest_and_newest
def test_blobs_are_gathered_16_bytes_a_thread_and_all_asked_for_first(capability: tuple[int, int]) -> None:
    text = ptx(blobs_kernel(), capability)
    loads, stores = (re.compile(rf"{kind}\.global\S*\.v4") for kind in ("ld", "st"))
    assert len(loads.findall(text)) == len(stores.findall(text)) == 4
    assert max(one.start() for one in loads.finditer(text)) < min(one.start() for one in stores.finditer(text))
    assert ".local" not in text


@oldest_and_newest
def test_the_small_kernels_compile(capability: tuple[int, int]) -> None:
    small = (
        quantize_kernel(True),
        quantize_kernel(False),
        topk_kernel(),
        silu_kernel(),
        shared_init_kernel(),
        scatter_add_kernel(),
        select_kernel(4),
    )
    for kernel in (*small, f32_kernel(("Q2_0",), 64, 256, True, (16,))):
        assert ".entry" in ptx(kernel, capability)


def test_products_of_the_weighted_sum_are_rounded_before_they_are_added() -> None:
    text = ptx(scatter_add_kernel(), (9, 0))
    assert "mul.rn.f32" in text and "add.rn.f32" in text
    assert "fma" not in text


@pytest.mark.parametrize("capability", [(8, 6), (12, 0)])
def test_a_streams_values_stay_in_registers(capability: tuple[int, int]) -> None:
    text = ptx(inject_kernel(4, 2560), capability)
    assert text.count("ld.global") >= 3 * 5 + 1  # all five values of a thread, their block's and their weights
    assert ".local" not in text and "fma.rn.f32" not in text
    assert ".local" not in ptx(inject_kernel(2, 8192), capability)
    assert not re.search(r"bra.*ld\.global", text, re.DOTALL)  # every load is under way before anything waits


@pytest.mark.parametrize("capability", [(8, 6), (12, 0)])
def test_delta_step_loads_and_stores_its_state_once_and_16_bytes_wide(capability: tuple[int, int]) -> None:
    text = ptx(step_kernel(128), capability)
    assert text.count("ld.global.v4.f32") == 8 == text.count("st.global.v4.f32") - 1  # eight rows of four columns, and what was read
    assert text.count("shfl.sync.bfly") == 2 * 9  # four columns at the key and at the query, and key . query
    for kernel in (step_kernel(128), step_kernel(100), conv_kernel(4, 128), norm_kernel(128, "silu")):
        assert ".local" not in ptx(kernel, capability)


@pytest.mark.parametrize(("experts", "count", "capability"), [(512, 10, (8, 6)), (1025, 16, (12, 0)), (3, 2, (9, 0))])
def test_the_route_loads_all_its_scores_before_it_branches(experts: int, count: int, capability: tuple[int, int]) -> None:
    text = ptx(route_kernel(experts, count), capability)
    assert text[: text.index("redux.sync")].count("ld.global.nc.f32") == -(-experts // 32)
    assert "bra" not in text[: text.index("redux.sync")]
    assert "redux.sync.max.u32" in text and "redux.sync.min.u32" in text and "red.global.add.s32" in text
    assert ".local" not in text


def test_a_tokens_small_kernels_divide_by_constants_and_load_ahead() -> None:
    for kernel in (combine_kernel(10, 2560), pair_kernel(640)):
        text = ptx(kernel, (9, 0))
        assert ".local" not in text and "div.s64" not in text and "div.u64" not in text
    assert ptx(combine_kernel(10, 2560), (9, 0)).count("ld.global.nc.f32") == 2 + 2 * 10


@pytest.mark.parametrize("capability", [(8, 6), (12, 0)])
def test_the_index_of_decode_keeps_its_keys_in_registers_for_all_rows(capability: tuple[int, int]) -> None:
    text = ptx(scores_at_kernel(4, 128, 4), capability)
    assert text.count("fma.rn.f32") == 4 * 64  # four heads, a quarter of two keys
    assert text.count("ld.global.nc.v4.f32") == 16 + 4 * 8  # of the keys, and of the queries
    for kernel in (scores_at_kernel(4, 128, 4), append_kernel(128, 32, 4, 4), queries_kernel(128, 32), select_kernel(4, 1024, True)):
        assert ".local" not in ptx(kernel, capability)


@pytest.mark.parametrize("capability", [(8, 6), (12, 0)])
def test_the_dense_matvec_keeps_its_sums_in_registers_and_halves_its_shuffles(capability: tuple[int, int]) -> None:
    text = ptx(dense_kernel("Q8_0", 2560, cut(320, 16_384), 1, Stored(2, 2560, 2720, 80, True)), capability)
    assert "ld.global.nc.v2.u32" in text and "ld.global.nc.v4" in text  # eight codes, four values of x
    assert text.count("shfl.sync.bfly") == 2 + 1 + 1 + 1 + 1  # of four sums
    assert ".local" not in text


@pytest.mark.parametrize("capability", [(8, 6), (12, 0)])
def test_sums_are_taken_on_where_they_are_made(capability: tuple[int, int]) -> None:
    x, wide, act, none = (np.empty((1, width), np.float32) for width in (2560, 10_240, 320, 4))
    down, up = Gates(act, none, 4), Mixed(wide, x)
    kept = [(down, 10_240, 324, Stored(2, 10_240, 10_880, 320, False)), (up, 320, 10_240, Stored(1, 320, 340, 10, False))]
    for to, width, outs, stored in kept:
        text = ptx(dense_kernel("Q8_0", width, apart(to, float_cut(width, outs)), 1, stored, finish(to)), capability)
        assert ".local" not in text and text.count("ex2.approx") >= 1
    assert len(re.findall(r"st\.global", text)) == 1  # one value of four streams'


@pytest.mark.parametrize("name", ["F32", "Q8_0", "Q5_K", "IQ2_XS"])
def test_no_dense_matvec_has_anything_in_local_memory(name: str) -> None:
    rows = 8 if name in ("F32", "Q8_0") else 1  # eight rows take seconds to compile
    stored = Stored(1, 2560, FORMATS[name].row_bytes(2560), 2560 // FORMATS[name].block_values, False)
    assert ".local" not in ptx(dense_kernel(name, 2560, cut(320, 16_384), rows, stored), (9, 0))


@pytest.mark.parametrize("capability", [(8, 6), (12, 0)])
def test_the_dense_8_bit_matvec_has_dp4a_and_wide_loads(capability: tuple[int, int]) -> None:
    text = ptx(dense_q8_kernel("Q8_0", 2560, cut(160, 16_384), 1, Stored(1, 2560, 2720, 80, True)), capability)
    assert text.count("dp4a.s32.s32") >= 4 * 4
    assert text.count("ld.global.nc.v4.u32") >= 4 + 1  # sixteen codes of four outputs and of the row
    assert ".local" not in text


@pytest.mark.parametrize(("kv_format", "capability"), [("fp16", (8, 6)), ("fp32", (9, 0)), ("fp16", (12, 0))])
def test_attention_of_one_token_asks_for_its_keys_and_values_before_it_computes(kv_format: str, capability: tuple[int, int]) -> None:
    text = ptx(part_kernel(12, 256, kv_format, 4, False), capability)
    assert text.count("fma.rn.f32") >= 12 * (64 + 64)  # every head: a quarter of half of two keys, two values of 32
    before = text[: text.index("fma.rn.f32")]
    assert before.count("ld.global.nc.v4") == (8 if kv_format == "fp16" else 16) + 6  # the keys, and the queries
    narrow = r"ld\.global\.nc\.u32 " if kv_format == "fp16" else r"ld\.global\.nc\.v2"
    assert len(re.findall(narrow, before)) >= 32  # the values
    assert ".local" not in text


@pytest.mark.parametrize(("kv_format", "loads", "is_split"), [("int8", r"v2\.u32", False), ("q4_0", r"u32 ", True)])
def test_codes_of_one_tokens_keys_are_loaded_eight_at_once(kv_format: str, loads: str, is_split: bool) -> None:
    text = ptx(part_kernel(12, 256, kv_format, 4, is_split), (9, 0))
    assert len(re.findall(rf"ld\.global\.nc\.{loads}", text)) >= 8 and "cvt.rn.f32.s" not in text
    assert text.count("fma.rn.f32") >= 12 * (64 + 64)
    assert ".local" not in text


@pytest.mark.parametrize("capability", [(8, 6), (12, 0)])
def test_what_stands_before_and_after_attention_keeps_nothing_in_local_memory(capability: tuple[int, int]) -> None:
    inputs = [inputs_kernel(256, 32, kv_format, kv_format == "int8") for kv_format in ("fp32", "fp16", "int8", "q4_0")]
    for kernel in (gather_kernel(256, 4, True), gather_kernel(256, 4, False), back_kernel(256, "q4_0"), *inputs):
        assert ".local" not in ptx(kernel, capability)
    assert "st.global.v4.u32" in ptx(inputs[1], capability)  # eight halves of a cell
