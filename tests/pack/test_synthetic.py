"""Synthetic models: the same config the same bytes, values of a sensible size, a router with the stated skew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernels_numba.reference import dequantize
from strata_recipes.errors import ConfigError
from strata_recipes.pack.reader import open_pack
from strata_recipes.pack.sources import open_source
from strata_recipes.pack.sources.synthetic import UNIT_RMS, SyntheticSource, Tile, synthetic_index
from strata_recipes.pack.writer import build_pack
from tests.kernels.blocks import random_blocks
from tests.pack.stated import REAL, SMALL, model

RUNS = [(2, "Q2_0", "Q2_0", "Q2_0"), (1, "Q4_0", "Q8_0", "BF16"), (1, "IQ4_NL", "F16", "F32")]


def test_a_pack_of_random_weights(tmp_path: Path) -> None:
    stated = model("synthetic", SMALL, RUNS, seed=3, skew=0.45)
    for name in ("a", "b"):
        with open_source(stated) as source:
            build_pack(source, tmp_path / name, batch_bytes=1 if name == "a" else 1 << 24)
    files = ["dense.safetensors", "experts.bin", "ngram.bin", "pack.json"]
    assert sorted(p.name for p in (tmp_path / "a").iterdir() if p.name != ".lock") == files
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in files)
    with open_pack(tmp_path / "a") as pack:
        assert pack.index == synthetic_index(stated)
        assert len(set(pack.checksums.reshape(-1).tolist())) == 160  # no two experts are alike
        experts = np.memmap(pack.experts_path, np.uint8, "r")
        for layer, at in enumerate(pack.index.layers):
            blob = np.array(experts[pack.index.offset(layer, 7) :][: at.blob_bytes])
            gate = dequantize(blob[: at.gate_bytes], at.gate)
            assert np.isfinite(gate).all() and 0.8 < np.sqrt((gate.astype(float) ** 2).mean() * 128) < 1.2
            down = dequantize(blob[-at.down_bytes :], at.down)
            assert 0.8 < np.sqrt((down.astype(float) ** 2).mean() * 64) < 1.2
        data, form = pack.ngram_rows(np.arange(500))
        assert form == "Q4_0" and np.isfinite(dequantize(data.reshape(-1), form)).all() and len(np.unique(data, axis=0)) > 490
        assert pack.eos_token_ids == () and pack.tokenizer_path is None and pack.chat_template is None


def test_exact_tensors(tmp_path: Path) -> None:
    with open_source(model("synthetic", SMALL, RUNS, skew=0.45)) as source:
        found = {
            t.name: np.frombuffer(b"".join(pieces), np.float32).reshape(t.shape)
            for t, pieces in source.dense_tensors()
            if t.format == "F32"
        }
    assert (found["blk.0.hc_attn_norm.weight"] == 1).all() and (found["blk.0.ssm_norm.weight"] == 1).all()
    decay = found["blk.0.ssm_a"]
    assert ((-np.exp(1) <= decay) & (decay <= -np.exp(-2))).all()
    assert not (found["blk.0.ffn_gate_inp.weight"] == found["blk.1.ffn_gate_inp.weight"]).any()


def test_the_skew_of_the_real_router() -> None:
    """61 % of 512 experts touched by 512 tokens of top-10: what the public engine saw with this skew."""
    from strata_recipes.pack.sources.synthetic import exact_values

    index = synthetic_index(model("synthetic", REAL | {"ngram_layers": []}, [(48, "Q2_0", "Q2_0", "Q2_0")], skew=0.45))
    tensor = next(t for t in index.dense if t.name == "blk.5.ffn_gate_inp.weight")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((512, 2560)).astype(np.float32)

    def touched(skew: float) -> float:
        return len(np.unique(np.argsort(x @ exact_values(tensor, 0, skew).T, axis=1)[:, -10:])) / 512

    assert touched(0.45) == pytest.approx(0.61, abs=0.05) and touched(0.0) > 0.98


def test_other_seeds_skews_and_formats_are_other_packs() -> None:
    ids = {synthetic_index(model("synthetic", SMALL, RUNS, **more)).pack_id for more in ({}, {"seed": 1}, {"skew": 0.1}, {"dense": "F16"})}
    ids.add(synthetic_index(model("synthetic", SMALL | {"vocab": 301}, RUNS)).pack_id)
    assert len(ids) == 5
    assert synthetic_index(model("synthetic", SMALL, RUNS, seed=0)).pack_id in ids  # null is seed 0


@pytest.mark.parametrize("name", sorted(UNIT_RMS))
def test_the_scale_of_random_codes(name: str) -> None:
    blocks = random_blocks(name, 4000, seed=1).reshape(4000, -1)
    blocks[:, :2] = np.array([1], np.float16).view(np.uint8)
    values = dequantize(blocks.reshape(-1), name).astype(float)
    assert np.sqrt((values**2).mean()) == pytest.approx(UNIT_RMS[name], rel=0.02)


def test_a_tile_is_cut_anywhere_without_a_seam() -> None:
    tile = Tile("Q8_0", 64, 34 * 1000, 0)
    pieces = b"".join(tile.pieces(34 * 200_000, "a"))
    scales = np.frombuffer(pieces, np.uint8).reshape(-1, 34)[:, :2].copy().view(np.float16)
    assert len(pieces) == 34 * 200_000 and len(np.unique(np.abs(scales))) == 1
    assert b"".join(tile.pieces(3400, "a")) != b"".join(tile.pieces(3400, "b"))


def test_the_index_of_the_real_geometry_draws_nothing() -> None:
    source = SyntheticSource(model("synthetic", REAL | {"ngram_layers": []}, [(48, "Q2_0", "Q2_0", "Q2_0")]))
    assert source.index.experts_bytes == 33_973_862_400 and source.ngram_location is None and not source._tiles


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(ConfigError, match="an n-gram table of 8 rows is too small for 4 heads"):
        synthetic_index(model("synthetic", SMALL | {"ngram_rows": 8}, RUNS))
    with pytest.raises(ConfigError, match="random weights are not made in Q4_K"):
        synthetic_index(model("synthetic", SMALL, [(4, "Q4_K", "Q4_K", "Q4_K")]))
