"""The whole model against transformers: stored oracles of the reference checkpoints, and models made here with transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpForCausalLM

from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.pack.reader import open_pack
from strata_recipes.pack.sources.safetensors import HfSource
from strata_recipes.pack.writer import build_pack
from tests.model.drive import FileExperts, distance, greedy, logits
from tests.model.hf_model import MemoryPack, make_model, oracle
from tests.model.references import HF, stored
from tests.model.ties import explain

needs_hf = pytest.mark.skipif(not HF.exists(), reason=f"{HF.name} is not here")
TEXTS = [
    *((name, part) for name in ("tiny-q2_0", "tiny-mixed") for part in ("short", "mid", "long")),
    *(("storyteller", part) for part in ("p0", "p1", "p2")),
    *(pytest.param("tiny-hf", part, marks=needs_hf) for part in ("short", "mid", "long")),
]
GREEDY = [
    ("tiny-q2_0", "greedy"),
    ("tiny-mixed", "greedy"),
    *(("storyteller", part) for part in ("p0", "p1", "p2")),
    pytest.param("tiny-hf", "greedy", marks=needs_hf),
]
CHUNKS = [7, 64, 512, 1 << 20]
WHOLE = CHUNKS[-1]
TOKEN_BY_TOKEN = [text for text in TEXTS if text != ("tiny-q2_0", "long")]  # 700 tokens take longest of all tests: of many formats alone


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize(("name", "part"), TEXTS)
def test_logits_of_a_prompt_in_chunks(loaded: Any, name: str, part: str, chunk: int) -> None:
    check(loaded, name, part, chunk)


@pytest.mark.parametrize(("name", "part"), TOKEN_BY_TOKEN)
def test_logits_of_a_prompt_token_by_token(loaded: Any, name: str, part: str) -> None:
    check(loaded, name, part, 1)


def check(loaded: Any, name: str, part: str, chunk: int) -> None:
    model, pack, experts = loaded(name)
    want = stored(name, part)
    got, state = logits(model, pack, experts, want["ids"], chunk)
    assert state.num_tokens == len(want["ids"])
    assert distance(got, want["logits"]) <= 1e-3, explain(model, pack, experts, want["ids"], got, want["logits"])


@pytest.mark.parametrize(("name", "part"), GREEDY)
def test_greedy_tokens(loaded: Any, name: str, part: str) -> None:
    model, pack, experts = loaded(name)
    want = stored(name, part)
    tokens, leads = greedy(model, pack, experts, want["ids"], len(want["tokens"]))
    rows = enumerate(zip(tokens, want["tokens"].tolist(), leads, strict=True))
    differ = [f"token {i}: {ours} for {theirs}, ahead of the next by {lead:.2e}" for i, (ours, theirs, lead) in rows if ours != theirs]
    assert not differ, differ[:3]


@pytest.mark.parametrize(("compute", "limit"), [("bf16", 2e-2), ("f16", 2e-2), ("q8", 4e-2)])
@pytest.mark.parametrize(("name", "part"), [("tiny-q2_0", "long"), ("tiny-mixed", "mid"), ("storyteller", "p2")])
def test_narrower_arithmetic_stays_near(loaded: Any, name: str, part: str, compute: str, limit: float) -> None:
    model, pack, experts = loaded(name, compute)
    want = stored(name, part)
    got = distance(logits(model, pack, experts, want["ids"], 512)[0], want["logits"])
    assert 1e-5 < got <= limit, f"{got:.2e}: at 1e-5 nothing would have been rounded"


@pytest.mark.parametrize("name", ["tiny-mixed", "storyteller"])
def test_half_precision_kv_stays_near(loaded: Any, name: str) -> None:
    model, pack, experts = loaded(name, kv="fp16")
    want = stored(name, "long" if name == "tiny-mixed" else "p2")
    got = distance(logits(model, pack, experts, want["ids"], 64)[0], want["logits"])
    assert 2e-6 < got <= 1e-3, f"{got:.2e}"


def ids_with_ends(length: int, vocab: int, seed: int = 1) -> np.ndarray:
    """Random ids, one in ten an end of text, which cuts n-grams."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, vocab, length)
    ids[rng.integers(0, length, length // 10)] = 2
    return ids


@pytest.mark.parametrize("length", [1, 5, 35, 36, 130])
def test_a_seeded_model_in_memory(small: Any, length: int) -> None:
    """35 tokens are the last that read every block, 36 the first that choose."""
    theirs, pack = small
    model = Qwen4Exp(pack, "f32", "fp32", 512, 1)
    ids = ids_with_ends(length, 96)
    want = oracle(theirs, ids)
    for chunk in (1, 5, 64, WHOLE):
        got = logits(model, pack, pack, ids, chunk)[0]
        assert distance(got, want) <= 3e-5, f"chunk {chunk}: {explain(model, pack, pack, ids, got, want)}"


@pytest.mark.parametrize(
    "changes",
    [
        {"output_gate_type": "silu"},
        {"ple_layer_ids": [1, 3]},
        {"ple_layer_ids": []},
        {"indexer_compress_ratio": 8},
        {"ngram_size": 4, "heads_per_ngram": 2, "ple_conv_kernel_size": 3},
        {"linear_conv_kernel_dim": 2, "num_hidden_layers": 8},
        {"num_experts_per_tok": 10},
    ],
    ids=str,
)
def test_other_geometries(changes: dict[str, Any]) -> None:
    theirs = make_model(5, **changes)
    pack = MemoryPack(theirs)
    ids = ids_with_ends(90, 96, seed=2)
    got = logits(Qwen4Exp(pack, "f32", "fp32", 128, 1), pack, pack, ids, 17)[0]
    assert distance(got, oracle(theirs, ids)) <= 3e-5


def test_a_seeded_hugging_face_folder(tmp_path: Path) -> None:
    """bf16, written by transformers, packed, and run: against transformers in float32 on what it reads back."""
    make_model(3).to(torch.bfloat16).save_pretrained(tmp_path / "hf", max_shard_size="100KB")
    theirs = Qwen4ExpForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float32).eval()
    with HfSource("seeded", tmp_path / "hf") as source:
        build_pack(source, tmp_path / "pack")
    ids = ids_with_ends(130, 96)
    want = oracle(theirs, ids)
    with open_pack(tmp_path / "pack") as pack:
        model, experts = Qwen4Exp(pack, "f32", "fp32", 256, 1), FileExperts(pack)
        for chunk in (1, 7, 64, WHOLE):
            got = logits(model, pack, experts, ids, chunk)[0]
            assert distance(got, want) <= 3e-5, f"chunk {chunk}: {explain(model, pack, experts, ids, got, want)}"
        with torch.no_grad():
            tokens = theirs.generate(torch.as_tensor(ids[None, :20]), max_new_tokens=24, do_sample=False, eos_token_id=-1)[0, 20:]
        assert greedy(model, pack, experts, ids[:20], 24)[0] == tokens.tolist()
