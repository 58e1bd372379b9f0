"""The kernels of attention and of the delta net against the machine's ceilings or torch's form: python -m benchmarks.mixer_kernels [part].

Prints one ratio a line, as benchmarks/kernels.py does. Operands are random, at the true model's geometry; nothing is emulated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from benchmarks.kernels import Line, Parts, main
from kernels_numba.gpu.delta_chunks import CHUNK, delta_chunks
from kernels_numba.gpu.index_scores import index_scores
from kernels_numba.gpu.select_blocks import select_blocks
from kernels_numba.gpu.selected_attention import selected_attention


def matmul_ceiling(size: int = 8192) -> tuple[Callable[[], object], float]:
    """torch's float32 matmul, in TFLOP."""
    torch.backends.cuda.matmul.allow_tf32 = False
    left, right = torch.randn(size, size, device="cuda"), torch.randn(size, size, device="cuda")
    return lambda: left @ right, 2 * size**3 / 1e12


def attention_lines(dtype: torch.dtype, context: int = 223_706, tokens: int = 4096) -> list[Line]:
    """A QSA layer at the end of a long prompt: random blocks (the cache helps least), and all tokens the same ones (it helps most)."""
    heads, group, dim, block, count = 2, 12, 256, 4, 512
    query, out = (torch.randn(heads, tokens, group, dim, device="cuda") for _ in range(2))
    keys, values = (torch.randn(heads, context, dim, device="cuda").to(dtype) for _ in range(2))
    whole, start = (context - tokens) // block, context - tokens
    apart = torch.stack([torch.randperm(whole, device="cuda")[:count].sort().values.int() for _ in range(tokens)])
    flops = 4 * heads * tokens * group * dim * (count * block + 1.5) / 1e12
    ceiling, units = matmul_ceiling()

    def gathered(part: int = 128) -> None:
        for at in range(0, tokens, part):
            read = (apart[at : at + part, :, None] * block + torch.arange(block, device="cuda")).flatten().long()
            key, value = (cells.index_select(1, read).float().view(heads, -1, count * block, dim) for cells in (keys, values))
            out[:, at : at + part] = (query[:, at : at + part] @ key.transpose(2, 3)).softmax(-1) @ value

    def attend(chosen: torch.Tensor) -> Callable[[], object]:
        return lambda: selected_attention(query, keys, values, chosen, block, start, out)

    name, same = f"selected_attention {str(dtype)[6:]}", apart[:1].expand(tokens, -1).contiguous()
    first, first_out = query[:, :2048].contiguous(), out[:, :2048].contiguous()
    first_flops = 4 * heads * group * dim * 2048 * 1024.5 / 1e12

    def read_all() -> None:
        selected_attention(first, keys, values, None, block, 0, first_out)

    return [
        Line(f"{name}, blocks apart, of float32 matmul", 0.0, attend(apart), flops, ceiling, units, "TFLOP/s"),
        Line(f"{name}, same blocks, of float32 matmul", 0.0, attend(same), flops, ceiling, units, "TFLOP/s"),
        Line(f"{name}, all of 2,048, of float32 matmul", 0.0, read_all, first_flops, ceiling, units, "TFLOP/s"),
        Line(f"{name}, of gathering in torch", 0.0, attend(apart), flops, gathered, flops, "TFLOP/s"),
    ]


def selection_line(blocks: int = 55_926, tokens: int = 4096) -> Line:
    """512 of a long prompt's blocks, the scores sums of relu, against torch.topk and a sort of its ids."""
    scores = torch.relu(torch.randn(4, tokens, blocks, device="cuda") - 1).sum(0)
    chosen = torch.empty(tokens, 512, dtype=torch.int32, device="cuda")

    def ours() -> None:
        select_blocks(scores, 4, 4 * blocks - tokens, chosen)

    return Line(f"select_blocks, 512 of {blocks}, of topk and sort", 0.0, ours, tokens / 1e6,
                lambda: scores.topk(512).indices.sort(), tokens / 1e6, "Mrows/s")  # fmt: skip


def scores_line(blocks: int = 55_926, tokens: int = 2048, heads: int = 4, dim: int = 128) -> Line:
    """A tile of a long prompt's queries over all blocks, against torch's product, relu and sum."""
    queries, keys = torch.randn(tokens, heads, dim, device="cuda"), torch.randn(blocks, dim, device="cuda")
    out = torch.empty(tokens, blocks, device="cuda")
    torch.backends.cuda.matmul.allow_tf32 = False

    def in_torch() -> None:
        dots = (queries.flatten(0, 1) @ keys.t()).view(tokens, heads, blocks)
        torch.sum(torch.relu(dots), 1, out=out).div_(dim**0.5)

    flops = 2 * tokens * heads * blocks * dim / 1e12
    return Line("index_scores, of torch", 0.0, lambda: index_scores(queries, keys, out), flops, in_torch, flops, "TFLOP/s")


def delta_line(heads: int = 48, chunks: int = 64, dim: int = 128) -> Line:
    """A GDN layer's chunks in turn, against batched products in torch, a few launches a chunk (host time is not in it)."""
    reads, wanted, adds, written = (torch.randn(heads, chunks, CHUNK, dim, device="cuda") / dim for _ in range(4))
    decay, state = torch.rand(heads, chunks, device="cuda"), torch.randn(heads, dim, dim, device="cuda")
    before = torch.empty(heads, chunks, dim, dim, device="cuda")

    def ours() -> None:
        delta_chunks(reads, wanted, adds, decay, state, written, before)

    def in_torch() -> None:
        for n in range(chunks):
            before[:, n] = state
            written[:, n] = torch.baddbmm(wanted[:, n], reads[:, n], state, alpha=-1)
            state.mul_(decay[:, n, None, None]).baddbmm_(adds[:, n].transpose(1, 2), written[:, n])

    flops = 4 * heads * chunks * CHUNK * dim * dim / 1e12
    return Line(f"delta_chunks, {chunks} chunks, of batched torch", 0.0, ours, flops, in_torch, flops, "TFLOP/s")


def lines() -> Parts:
    """Names and makers, as benchmarks/kernels.py has them."""
    return [
        ("selected_attention fp16", lambda: attention_lines(torch.float16)),
        ("selected_attention fp32", lambda: attention_lines(torch.float32)),
        ("select_blocks", lambda: [selection_line()]),
        ("index_scores", lambda: [scores_line()]),
        ("delta_chunks", lambda: [delta_line()]),
    ]


if __name__ == "__main__":
    main(lines(), sys.argv[1] if len(sys.argv) > 1 else "")
