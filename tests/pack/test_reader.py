"""Opening packs: every file checked to the byte before use, profiles, and the n-gram table that stays in the source."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from strata_recipes.config import schema
from strata_recipes.errors import FileError, PackError
from strata_recipes.pack.manifest import manifest_text, read_manifest
from strata_recipes.pack.profile import load_profile, order_id, save_profile
from strata_recipes.pack.reader import open_pack
from strata_recipes.pack.sources import open_source
from strata_recipes.pack.writer import build_pack
from tests.pack.gguf_edit import TINY


@pytest.fixture
def folder(tiny_pack: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(tiny_pack, tmp_path / "p"))


def _resize(name: str, change: int) -> Callable[[Path], object]:
    return lambda folder: os.truncate(folder / name, max(0, (folder / name).stat().st_size + change))


def _replace(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: ((folder / name).unlink(), make(folder / name))


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut by a byte": (_resize("experts.bin", -1), "experts.bin is cut: it has 1,572,863 bytes, pack.json wants 1,572,864"),
    "cut by 1,024": (_resize("experts.bin", -1024), "experts.bin is cut: it has 1,571,840 bytes, pack.json wants 1,572,864"),
    "cut to 0": (_resize("experts.bin", -1_572_864), r"experts.bin is empty \(0 bytes\).*pack.json wants 1,572,864"),
    "4,096 longer": (_resize("experts.bin", 4096), "experts.bin is padded: it has 1,576,960 bytes, pack.json wants 1,572,864"),
    "dense cut": (_resize("dense.safetensors", -1), r"dense.safetensors is cut: it has [\d,]+ bytes, pack.json wants [\d,]+"),
    "tokenizer longer": (_resize("tokenizer.json", 1), "tokenizer.json is padded"),
    "a folder": (_replace("experts.bin", Path.mkdir), "experts.bin is a folder, a file is wanted; pack.json wants 1,572,864"),
    "a pipe": (_replace("experts.bin", os.mkfifo), "experts.bin is a pipe or a device"),
    "not there": (lambda f: (f / "experts.bin").unlink(), "experts.bin does not exist; pack.json wants 1,572,864 bytes"),
    "another dense file": (lambda f: _poke(f / "dense.safetensors", 100), "dense.safetensors has another header than pack.json wants"),
    "no manifest": (lambda f: (f / "pack.json").unlink(), "holds no pack.json"),
    "manifest edited": (
        lambda f: _edit(f, '"top_k": 4', '"top_k": 3'),
        "pack.json is damaged or was edited: its checksum is not the stated",
    ),
    "newer version": (lambda f: _edit(f, '"format_version": 1', '"format_version": 2'), "format version 2, this build reads 1"),
    "version 0": (lambda f: _restate(f, format_version=0), "format version 0, this build reads 1"),
}


def _poke(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def _edit(folder: Path, old: str, new: str) -> None:
    text = (folder / "pack.json").read_text()
    assert old in text
    (folder / "pack.json").write_text(text.replace(old, new))


def _restate(folder: Path, **changes: object) -> None:
    """A manifest with other values and the right checksum: by someone who means it."""
    from dataclasses import replace

    manifest = read_manifest((folder / "pack.json").read_bytes(), "m")
    (folder / "pack.json").write_bytes(manifest_text(replace(manifest, **changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_pack_is_refused_with_its_own_sentence(folder: Path, case: str) -> None:
    change, sentence = WRONG[case]
    change(folder)
    with pytest.raises((PackError, FileError), match=sentence) as caught:
        open_pack(folder)
    assert caught.value.exit_code == 3 and str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(PackError, match=r"nothing does not exist; build the pack again with mode=pack"):
        open_pack(tmp_path / "nothing")
    with pytest.raises(PackError, match="is a file, a pack is a folder"):
        open_pack(TINY)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"checksums": ("00",)}, "lists 4 layers and 1 rows of checksums"),
        ({"checksums": ("0" * 383 + "x",) * 4}, "not 24 times 16 hex digits"),
        ({"experts_bytes": 2**53 + 1}, "its file sizes do not fit its tensors"),
        ({"dense": ()}, "tensors do not fit its geometry"),
        ({"ngram": None}, "tensors do not fit its geometry"),
    ],
)
def test_a_manifest_whose_sums_do_not_hold(folder: Path, changes: dict[str, object], sentence: str) -> None:
    _restate(folder, **changes)
    with pytest.raises(PackError, match=sentence):
        open_pack(folder)


def test_offsets_stay_whole_at_any_size() -> None:
    """Ids of any small type, sizes past 2**53: the products are exact."""
    from dataclasses import replace

    with open_source(schema.Model(name="tiny", source=str(TINY))) as source:
        index = source.index
    for base in (5 << 30, 2**31 - 1, 2**32 + 12288, 2**53 + 1):
        far = replace(index, layers=tuple(replace(at, offset=at.offset + base) for at in index.layers))
        assert far.offset(3, 23) == base + 3 * 24 * 16384 + 23 * 16384


def moved_source(tmp_path: Path) -> tuple[Path, Path]:
    source = tmp_path / "model.gguf"
    shutil.copy(TINY, source)
    with open_source(schema.Model(name="tiny", source=str(source))) as opened:
        build_pack(opened, tmp_path / "p")
    return source, tmp_path / "p"


def test_a_source_that_moved_or_changed_is_named(tmp_path: Path) -> None:
    source, folder = moved_source(tmp_path)
    again = r"; the n-gram table of pack .* is read from it: put it back, or build the pack again with mode=pack"
    os.utime(source, (1, 1))  # a copy with another date is the same file
    open_pack(folder).close()
    _poke(source, source.stat().st_size - 1)
    with pytest.raises(FileError, match=r"model.gguf has the same 5,874,816 bytes but other content than when it was packed" + again):
        open_pack(folder)
    os.truncate(source, 5_000_000)
    with pytest.raises(FileError, match=r"model.gguf has 5,000,000 bytes, it had 5,874,816 when it was packed" + again):
        open_pack(folder)
    source.unlink()
    with pytest.raises(FileError, match="model.gguf does not exist" + again):
        open_pack(folder)


def test_ngram_rows_are_read_one_by_one(tmp_path: Path) -> None:
    source, folder = moved_source(tmp_path)
    with open_pack(folder) as pack:
        rows = np.array([5, 10367, 0, 5], np.int64)
        data, form = pack.ngram_rows(rows)
        assert form == "F16" and data.shape == (4, 32) and (data[0] == data[3]).all() and not (data[0] == data[1]).all()
        assert pack.ngram_rows(np.empty(0, np.int64))[0].shape == (0, 32)
        for bad in (-1, 10368):
            with pytest.raises(IndexError, match=f"n-gram row {bad} of a table of 10368"):
                pack.ngram_rows(np.array([bad]))
        os.truncate(source, 1000)  # while it is open: an error with file, offset and length, not a signal
        with pytest.raises(FileError, match=r"model.gguf was shortened while in use: 0 of 32 bytes at offset [\d,]+ could be read"):
            pack.ngram_rows(rows)


def test_the_order_without_a_profile_is_expert_id_then_layer(tiny_pack: Path) -> None:
    with open_pack(tiny_pack) as pack:
        assert pack.order()[:5] == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1)]
        assert pack.index.profile_id == "" and len(pack.order()) == 96


def test_a_profile_comes_first_and_the_rest_follows(folder: Path) -> None:
    save_profile(folder / "profile.npz", [(3, 7), (0, 0)])
    with open_pack(folder) as pack:
        assert pack.order()[:4] == [(3, 7), (0, 0), (1, 0), (2, 0)]
        assert sorted(pack.order()) == [(la, ex) for la in range(4) for ex in range(24)]
        assert pack.index.profile_id == order_id(pack.order()) != ""


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ([(4, 0)], r"lists \(layer, expert\) \(4, 0\), the model has 4 layers of 24 experts"),
        ([(0, -1)], r"\(0, -1\)"),
        ([(1, 1), (1, 1)], "lists 1 pairs twice"),
    ],
)
def test_a_profile_of_another_model_is_refused(folder: Path, pairs: list[tuple[int, int]], sentence: str) -> None:
    save_profile(folder / "profile.npz", pairs)
    with pytest.raises(PackError, match=sentence):
        open_pack(folder)


def test_a_file_that_is_no_profile(folder: Path) -> None:
    with open_pack(folder) as pack:
        index = pack.index
    path = folder / "profile.npz"
    path.write_bytes(b"abc")
    with pytest.raises(PackError, match="is no profile, or damaged: File is not a zip file"):
        load_profile(path, index)
    np.savez(path, other=np.zeros(3))
    with pytest.raises(PackError, match="holds no array `pairs`"):
        load_profile(path, index)
    np.savez(path, pairs=np.zeros((3, 2)))
    with pytest.raises(PackError, match="type float64"):
        load_profile(path, index)
    path.write_bytes(bytes(1_000_000))
    with pytest.raises(PackError, match="has 1,000,000 bytes, a profile of 96 experts has at most"):
        load_profile(path, index)


def test_a_source_path_with_any_letters(tmp_path: Path) -> None:
    name = "modèle (1) 模型 #=[x].gguf"
    shutil.copy(TINY, tmp_path / name)
    with open_source(schema.Model(name="tiny", source=str(tmp_path / name))) as source:
        build_pack(source, tmp_path / "päck")
    json.loads((tmp_path / "päck" / "pack.json").read_text("ascii"))
    with open_pack(tmp_path / "päck") as pack:
        assert pack.ngram_rows(np.array([1]))[0].any()
