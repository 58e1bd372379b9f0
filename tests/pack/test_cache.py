"""The cache folder's key: another source, another folder; the same source elsewhere, the same folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from strata_recipes.config import choices, schema
from strata_recipes.errors import ConfigError, FileError, PackError
from strata_recipes.pack.cache import pack_folder, source_key
from strata_recipes.pack.sources import open_source
from tests.pack.gguf_edit import TINY, read, split
from tests.pack.stated import SMALL, model


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def gguf(path: Path, **more: str) -> schema.Model:
    return schema.Model(name="m", source=str(path), **more)  # type: ignore[arg-type]


def test_the_stated_folder_wins() -> None:
    assert pack_folder(gguf(TINY, pack="/a/b")) == Path("/a/b")


def test_the_key_is_the_id_of_the_pack(home: Path, checkpoint: Path) -> None:
    synthetic = model("synthetic", SMALL, [(4, "Q2_0", "Q2_0", "Q2_0")])
    hf = schema.Model(kind=choices.Source.hf, source=str(checkpoint))
    for stated in (gguf(TINY), schema.Model(source="shipped:storyteller"), synthetic, hf):
        with open_source(stated) as source:
            assert pack_folder(stated) == home / "cache" / "strata_recipes" / "packs" / source.index.pack_id


def test_content_size_and_name_count_but_neither_folder_nor_date(home: Path) -> None:
    copy = home / TINY.name
    shutil.copy(TINY, copy)
    os.utime(copy, (1, 1))
    key = source_key(gguf(TINY))
    assert source_key(gguf(copy)) == key
    data = bytearray(copy.read_bytes())
    for at in (len(data) - 1, 1000):
        data[at] ^= 1
        copy.write_bytes(data)
        assert source_key(gguf(copy)) != key
        data[at] ^= 1
    copy.write_bytes(TINY.read_bytes())
    assert source_key(gguf(copy.rename(home / "other.gguf"))) != key


def test_any_shard_gives_one_key(home: Path) -> None:
    assert len({source_key(gguf(path)) for path in split(read(TINY), home, [3, 9])}) == 1


def test_a_changed_config_is_another_pack(checkpoint: Path, home: Path) -> None:
    folder = Path(shutil.copytree(checkpoint, home / "c"))
    stated = schema.Model(kind=choices.Source.hf, source=str(folder))
    key = source_key(stated)
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("1e-06", "1e-05"))
    assert source_key(stated) != key


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the standard
    monkeypatch.setenv("HOME", "/somewhere")
    assert pack_folder(gguf(TINY)).parent == Path("/somewhere/.cache/strata_recipes/packs")


def test_what_has_no_pack() -> None:
    with pytest.raises(ConfigError, match="is declared, without weights"):
        pack_folder(schema.Model(kind=choices.Source.declared))
    with pytest.raises(PackError, match=r"of kind hf states no model\.source"):
        pack_folder(schema.Model(kind=choices.Source.hf, source=None))
    with pytest.raises(FileError, match=r"/nothing\.gguf does not exist"):
        pack_folder(gguf(Path("/nothing.gguf")))
