"""tests/gpu in numba's CUDA simulator, which must be chosen before numba is imported: hence a process of its own.

The simulator runs a thread of Python for each of the GPU's, so only a part of the tests goes there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = {
    "dequantize": (["test_dequantize.py"], "(not f16 and (F16 or Q2_0 or Q6_K or IQ3_S)) or (even_byte and Q4_K) or wrong or no_blocks"),
    "grouped_matmul": (["test_grouped_matmul.py"], "not (test_down and (f16 or bf16 or q8)) or Q2_0-bf16"),
    "products": (
        ["test_matvec.py", "test_quantize_rows.py", "test_moe.py", "test_route_topk.py", "test_dense_matvec.py", "test_dense_matvec_q8.py",
         "test_endings.py", "test_hyper_connection.py", "test_decode_experts.py", "test_gather_blobs.py", "test_simulated_blocks.py"],
        "",
    ),
    "mixers": (
        ["test_selected_attention.py", "test_select_blocks.py", "test_delta_chunks.py", "test_index_scores.py", "test_kv_cells.py",
         "test_kv_store.py", "test_delta_decode.py", "test_index_decode.py", "test_attention_decode.py", "test_attention_cells.py"],
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("part", list(PARTS))
def test_in_the_simulator(part: str) -> None:
    files, chosen = PARTS[part]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *(f"tests/gpu/{file}" for file in files), "-k", chosen]
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
