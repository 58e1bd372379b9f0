"""The CUDA kernels against the machine's own ceilings, measured in turn in one run: python benchmarks/kernels.py [part of a name].

Prints one ratio a line: what a kernel does, over what a copy, a DMA or torch's matmul on ready weights does in the same minute.
Weights are random, made on the GPU in planar order; more of them than the cache holds are used in rotation. Nothing is emulated.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numba_cuda
import numpy as np
import torch

from kernels_numba.device import check_device
from kernels_numba.formats import FORMATS
from kernels_numba.gpu.dequantize import dequantize_at
from kernels_numba.gpu.grouped_matmul import grouped_down, grouped_gate_up
from kernels_numba.gpu.groups import Groups, Part, tiles_of
from kernels_numba.gpu.jobs import Jobs
from kernels_numba.gpu.matvec import matvec
from kernels_numba.gpu.matvec_q8 import matvec_q8

EXPERTS, HIDDEN, WIDTH, ROWS = 512, 2560, 640, 160
GATE, DOWN = (WIDTH, HIDDEN), (HIDDEN, WIDTH)
ROTATED_BYTES = 2**30 + 2**28
ROUNDS = 5


@dataclass(frozen=True)
class Line:
    """One comparison. A run of `ours` moves or computes `ours_units`, one of `ceiling` `ceiling_units`, of the same unit."""

    name: str
    wanted: float
    ours: Callable[[], object]
    ours_units: float
    ceiling: Callable[[], object]
    ceiling_units: float
    unit: str


Parts = list[tuple[str, Callable[[], list[Line]]]]


def seconds(work: Callable[[], object]) -> float:
    """GPU time of one run: a pause before it lets the host queue every launch, so gaps between launches are not in it."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda._sleep(40_000_000)  # type: ignore[no-untyped-call]
    start.record()
    work()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) / 1000


def compare(line: Line) -> str:
    """Both arms in turn, ROUNDS times after one warm-up of each; medians."""
    for arm in (line.ceiling, line.ours):
        arm()
    pairs = [(seconds(line.ceiling), seconds(line.ours)) for _ in range(ROUNDS)]
    ceiling = line.ceiling_units / statistics.median(pair[0] for pair in pairs)
    ours = line.ours_units / statistics.median(pair[1] for pair in pairs)
    ratios = [line.ours_units / b / (line.ceiling_units / a) for a, b in pairs]
    verdict = "" if not line.wanted else f"  wanted {line.wanted:.2f}: {'met' if ours / ceiling >= line.wanted else 'MISSED'}"
    spread = f"({min(ratios):.3f} to {max(ratios):.3f})"
    return f"{line.name:52s} {ours:9.1f} of {ceiling:9.1f} {line.unit:8s} ratio {ours / ceiling:.3f} {spread}{verdict}"


def weights(format_name: str, count: int, shape: tuple[int, int], pinned: bool = False) -> torch.Tensor:
    """`count` planar matrices [count, bytes], scales small and finite (K formats' minima too)."""
    form = FORMATS[format_name]
    blocks = shape[0] * shape[1] // form.block_values
    data = torch.randint(0, 256, (count, blocks * form.block_bytes), dtype=torch.uint8, device="cuda")
    at = 0
    for field, size in form.planes:
        if field in ("d", "dmin"):
            scales = (torch.rand(count, blocks, device="cuda") * 0.01 + 0.001).half()
            data[:, at : at + 2 * blocks] = scales.view(torch.uint8)
        at += size * blocks
    if not pinned:
        return data
    host = torch.empty(data.shape, dtype=torch.uint8, pin_memory=True)
    host.copy_(data)
    return host


def copy_ceiling(num_bytes: int = 2**31) -> tuple[Callable[[], object], float]:
    """A device-to-device copy, in GB read and written."""
    source, target = torch.empty(num_bytes, dtype=torch.uint8, device="cuda"), torch.empty(num_bytes, dtype=torch.uint8, device="cuda")
    return lambda: target.copy_(source), 2 * num_bytes / 1e9


def table_of(data: torch.Tensor) -> torch.Tensor:
    """Addresses of the rows of a tensor of blobs."""
    return torch.arange(len(data), device="cuda", dtype=torch.int64) * data.stride(0) + data.data_ptr()


def matvec_line(format_name: str, shape: tuple[int, int], wanted: float, integer: bool = True, rows: int = 1) -> Line:
    """One launch over a layer's experts, of layers in rotation."""
    one = shape[0] * shape[1] // FORMATS[format_name].block_values * FORMATS[format_name].block_bytes
    layers = -(-ROTATED_BYTES // (one * EXPERTS))
    data = weights(format_name, layers * EXPERTS, shape)
    run = matvec_runner(format_name, shape, data, layers, integer, rows)
    ceiling, units = copy_ceiling()
    kind = ("8-bit" if integer else "float32") + (f", {rows} rows" if rows > 1 else "")
    return Line(f"matvec {format_name} {shape[0]}x{shape[1]} {kind}", wanted, run, data.numel() / 1e9, ceiling, units, "GB/s")


def matvec_runner(
    format_name: str, shape: tuple[int, int], data: torch.Tensor, layers: int, integer: bool, rows: int = 1
) -> Callable[[], None]:
    """Launches over each layer in turn."""
    num_outs, width = shape
    per_layer = len(data) // layers
    table, places = table_of(data), torch.arange(rows, device="cuda", dtype=torch.int32).repeat(per_layer, 1).contiguous()
    out = torch.empty(per_layer, rows, num_outs, device="cuda")
    x, codes = torch.randn(rows, width, device="cuda"), torch.randint(-127, 128, (rows, width), dtype=torch.int8, device="cuda")
    scales = torch.rand(rows, width // 32, device="cuda")
    jobs = [Jobs(table[i * per_layer : (i + 1) * per_layer], places) for i in range(layers)]

    def run() -> None:
        for one in jobs:
            if integer:
                matvec_q8(codes, scales, one, format_name, num_outs, out, planar=True)
            else:
                matvec(x, one, format_name, num_outs, out, planar=True)

    run.keep = data  # type: ignore[attr-defined]
    return run


def pinned_line(format_name: str) -> Line:
    """Weights read in place from page-locked host memory, against copying them to the GPU."""
    one = GATE[0] * GATE[1] // FORMATS[format_name].block_values * FORMATS[format_name].block_bytes
    data = weights(format_name, 2**29 // one, GATE, pinned=True)
    target = torch.empty(data.shape, dtype=torch.uint8, device="cuda")
    run = matvec_runner(format_name, GATE, data, 1, True)
    size = data.numel() / 1e9
    name = f"matvec {format_name} from page-locked RAM, of DMA"
    return Line(name, 0.85, run, size, lambda: target.copy_(data, non_blocking=True), size, "GB/s")


def dequantize_line(format_name: str, output: str) -> Line:
    """Bytes read and written, of a copy's."""
    form = FORMATS[format_name]
    width = 4 if output == "f32" else 2
    blocks = 2**31 // (form.block_values * width)
    data = weights(format_name, 1, (1, blocks * form.block_values))
    out = torch.empty(blocks * form.block_values, dtype=torch.float32 if output == "f32" else torch.bfloat16, device="cuda")
    moved = (data.numel() + out.numel() * width) / 1e9
    ceiling, units = copy_ceiling()

    def run() -> None:
        dequantize_at(data.data_ptr(), blocks, format_name, out.data_ptr(), output, planar=True)

    run.keep = out  # type: ignore[attr-defined]
    return Line(f"dequantize {format_name} to {output}", 0.70, run, moved, ceiling, units, "GB/s")


def grouped_lines(format_name: str) -> list[Line]:
    """A layer's experts, ROWS rows each: fused with dequantization, and dequantized for torch, of torch on ready weights."""
    total, flops = EXPERTS * ROWS, 2 * EXPERTS * ROWS * 3 * HIDDEN * WIDTH / 1e12
    gate, up, down = (weights(format_name, EXPERTS, shape) for shape in (GATE, GATE, DOWN))
    blob_bytes = gate.stride(0) + up.stride(0) + down.stride(0)
    blobs = torch.cat([gate, up, down], dim=1).contiguous()
    x = torch.randn(total, HIDDEN, device="cuda").bfloat16()
    hidden, out = torch.empty(total, WIDTH, dtype=torch.bfloat16, device="cuda"), torch.empty(total, HIDDEN, device="cuda")
    groups = Groups(table_of(blobs), torch.from_numpy(tiles_of(np.full(EXPERTS, ROWS))).cuda())
    offsets = torch.arange(1, EXPERTS + 1, device="cuda", dtype=torch.int32) * ROWS
    both = torch.empty(EXPERTS, 2 * WIDTH, HIDDEN, dtype=torch.bfloat16, device="cuda")
    ready_down = torch.empty(EXPERTS, HIDDEN, WIDTH, dtype=torch.bfloat16, device="cuda")
    blocks = WIDTH * HIDDEN // FORMATS[format_name].block_values
    assert blob_bytes == blobs.stride(0)

    def fused() -> None:
        grouped_gate_up(x, groups, Part(format_name, 0), Part(format_name, gate.stride(0)), WIDTH, hidden, "bf16", planar=True)
        grouped_down(hidden, groups, Part(format_name, 2 * gate.stride(0)), HIDDEN, out, "bf16", planar=True)

    def widen() -> None:
        # planar tensors of one kind lie apart in this benchmark, so one launch a matrix kind widens all experts' as one tensor would
        for data, target in ((gate, both), (up, both), (down, ready_down)):
            dequantize_at(data.data_ptr(), blocks * EXPERTS, format_name, target.data_ptr(), "bf16", planar=True)

    def ready() -> None:
        product = torch._grouped_mm(x, both.transpose(1, 2), offsets)
        torch._grouped_mm(product[:, :WIDTH].contiguous(), ready_down.transpose(1, 2), offsets)

    def widened() -> None:
        widen()
        ready()

    widen()
    name = f"{format_name} {EXPERTS} experts x {ROWS} rows"
    return [
        Line(f"grouped_matmul fused, {name}", 0.40 if format_name == "Q2_0" else 0.0, fused, flops, ready, flops, "TFLOP/s"),
        Line(f"grouped_matmul dequantized for torch, {name}", 0.0, widened, flops, ready, flops, "TFLOP/s"),
    ]


def lines() -> Parts:
    """Names and makers; a maker allocates, so each runs when its turn comes."""
    made: Parts = [
        ("matvec Q2_0", lambda: [matvec_line("Q2_0", GATE, 0.40), matvec_line("Q2_0", DOWN, 0.40)]),
        ("matvec Q2_0 rows", lambda: [matvec_line("Q2_0", GATE, 0.0, rows=4), matvec_line("Q2_0", GATE, 0.0, integer=False)]),
        ("matvec Q8_0", lambda: [matvec_line("Q8_0", GATE, 0.70), matvec_line("Q8_0", DOWN, 0.70)]),
        ("matvec Q4_0", lambda: [matvec_line("Q4_0", GATE, 0.0), matvec_line("IQ2_XS", GATE, 0.0)]),
        ("pinned", lambda: [pinned_line("Q2_0"), pinned_line("Q8_0")]),
        ("grouped Q2_0", lambda: grouped_lines("Q2_0")),
        ("grouped IQ4_NL", lambda: grouped_lines("IQ4_NL")),
    ]
    for name in FORMATS:
        made.append((f"dequantize {name}", lambda name=name: [dequantize_line(name, "bf16"), dequantize_line(name, "f32")]))  # type: ignore[misc]
    return made


def main(made: Parts, part: str) -> None:
    print(f"{torch.cuda.get_device_name()}, {check_device()}, torch {torch.__version__}, numba-cuda {numba_cuda.__version__}, "
          f"numpy {np.__version__}")  # fmt: skip
    print(f"medians of {ROUNDS} rounds, both arms in turn; in brackets the lowest and highest ratio of a round")
    for name, make in made:
        if part in name:
            for line in make():
                print(compare(line), flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main(lines(), sys.argv[1] if len(sys.argv) > 1 else "")
