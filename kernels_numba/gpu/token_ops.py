"""The ops that a token's way through the layers is made of, by name: what a composition is given, on a card. Knows no model."""

from __future__ import annotations

from kernels_numba.gpu.attention_decode import attention_decode
from kernels_numba.gpu.attention_inputs import attention_inputs
from kernels_numba.gpu.decode_experts import experts_combine, route_decode, silu_pair
from kernels_numba.gpu.delta_decode import delta_conv, delta_norm, delta_step
from kernels_numba.gpu.dense_matvec import Stack, dense_matvec
from kernels_numba.gpu.dense_matvec_q8 import dense_matvec_q8
from kernels_numba.gpu.gather_blobs import gather_blobs
from kernels_numba.gpu.hyper_connection import hyper_inject_norm
from kernels_numba.gpu.index_decode import index_append, index_queries, index_scores_at, select_blocks_at
from kernels_numba.gpu.jobs import Jobs
from kernels_numba.gpu.matvec import matvec
from kernels_numba.gpu.matvec_q8 import matvec_q8
from kernels_numba.gpu.moe import silu_multiply
from kernels_numba.gpu.quantize_rows import quantize_rows

__all__ = [
    "Jobs", "Stack", "attention_decode", "attention_inputs", "delta_conv", "delta_norm", "delta_step", "dense_matvec",
    "dense_matvec_q8", "experts_combine", "gather_blobs", "hyper_inject_norm", "index_append", "index_queries",
    "index_scores_at", "matvec", "matvec_q8", "quantize_rows", "route_decode", "select_blocks_at", "silu_multiply", "silu_pair",
]  # fmt: skip
