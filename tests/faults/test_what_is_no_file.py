"""A pipe or a device in the place of a file that a user names: refused at once, never waited for, never read without end."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from strata_recipes.npy import npy_array, npz_member
from strata_recipes.text.user_file import MOST_BYTES
from tests.end_to_end.conftest import Strata
from tests.faults.conftest import Packed

PLACES = {
    "workload.token_ids_file": ("workload.token_ids_file={}",),
    "workload.text_file": ("workload.text_file={}",),
    "experts.profile": ("workload.token_ids_file={ids}", "experts.profile={}"),
    "model.source": ("workload.token_ids_file={ids}", "model.source={}"),
    "model.pack": ("workload.token_ids_file={ids}", "model.pack={}"),
}


def a_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def an_endless_device(folder: Path) -> Path:
    return Path("/dev/zero")


@pytest.mark.parametrize(
    ("place", "what"),
    [(place, a_pipe) for place in PLACES] + [(f"workload.{key}", an_endless_device) for key in ("token_ids_file", "text_file")],
)
def test_refused_by_name(inside: Strata, tiny: Packed, ids_file: Path, tmp_path: Path, place: str, what: object) -> None:
    path = what(tmp_path)  # type: ignore[operator]
    words = [word.format(path, ids=ids_file) for word in PLACES[place]]
    done = inside("model=gguf", f"model.source={tiny.made.path}", "hardware=rtx3060_6gb", "mode=plan", *words)
    assert done.code == 3 and str(path) in done.last_line and not done.folders, done.err
    assert "Traceback" not in done.err


STATED = {
    "a model not there": ("model=gguf", "model.source={0}/no.gguf", "{1} does not exist"),
    "a name too long": ("model=gguf", f"model.source={{0}}/{'a' * 300}", "{1} cannot be looked at: File name too long"),
    "a folder's name too long": ("model=hf", f"model.source={{0}}/{'a' * 300}", "{1} cannot be looked at: File name too long"),
    "a model's folder": ("model=gguf", "model.source={0}", "{1} is a folder, model=gguf wants a file: name the .gguf in it"),
    "no model": ("model=gguf", "model.source={0}/text", "{1} is not a GGUF file"),
    "a folder not there": ("model=hf", "model.source={0}/no", "{1} does not exist"),
    "no checkpoint": ("model=hf", "model.source={0}", "{1} holds neither model.safetensors"),
    "a file of the checkpoint": ("model=hf", "model.source={0}/hub", "{1}: {0}/hub/model.safetensors is empty (0 bytes)"),
    "a profile not there": ("model=demo", "experts.profile={0}/no.npz", "{1} does not exist"),
    "a profile's folder": ("model=demo", "experts.profile={0}", "{1} is a folder, a file is wanted"),
    "no profile": ("model=demo", "experts.profile={0}/text", "{1} is no profile, or damaged"),
    "another model's profile": ("model=demo", "experts.profile={0}/other.npz", "{1} lists (layer, expert) (999, 0)"),
    "a home not there": ("model=demo", "experts.profile=~nobody-has-this-name/x", "{1} does not exist"),
    "a profile in the home": ("model=demo", "experts.profile=~/no.npz", "{1}: {0}/no.npz does not exist"),
}


@pytest.mark.parametrize("case", STATED)
def test_the_setting_that_named_it_begins_the_line(inside: Strata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "text").write_text("once upon a time")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "model.safetensors").touch()
    np.savez(tmp_path / "other.npz", pairs=np.array([[999, 0]]))
    model, stated, told = STATED[case]
    word = stated.format(tmp_path)
    done = inside(model, word, "hardware=rtx3060_6gb", "mode=plan")
    assert done.code == 3 and done.last_line.startswith("strata: " + told.format(tmp_path, word)), done.err


def test_a_file_too_long_for_any_prompt_is_not_read(inside: Strata, tiny: Packed, tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.touch()
    os.truncate(path, MOST_BYTES + 1)
    for key in ("token_ids_file", "text_file"):
        done = inside("model=gguf", f"model.source={tiny.made.path}", "hardware=rtx3060_6gb", "mode=plan", f"workload.{key}={path}")
        assert done.code == 3 and f"{MOST_BYTES + 1:,} bytes" in done.last_line


@pytest.mark.parametrize("shape", ["(1000000000000,)", "(4, 4)", "(0,)", "()", "(40, 1)"])
def test_a_stated_shape_is_held_against_the_bytes(shape: str) -> None:
    """numpy would allocate what the header states."""
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(160)
    if shape == "(40, 1)":
        assert npy_array(data).shape == (40, 1)
    else:
        with pytest.raises(ValueError, match="160 bytes for shape"):
            npy_array(data)


def test_an_archive_that_unpacks_to_more_than_a_bound(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "bomb.npz", ids=np.zeros(1 << 20, np.int32))
    data = (tmp_path / "bomb.npz").read_bytes()
    assert len(data) < 8192 and npz_member(data, "ids", 1 << 23).shape == (1 << 20,)
    with pytest.raises(ValueError, match="of 4,194,432 bytes"):
        npz_member(data, "ids", 1 << 20)


def test_a_pack_that_cannot_be_put_there_is_refused_before_the_run_begins(
    inside: Strata, tiny: Packed, ids_file: Path, tmp_path: Path
) -> None:
    """And before its results folder is made."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    done = inside("model=gguf", f"model.source={tiny.made.path}", f"workload.token_ids_file={ids_file}", f"model.pack={tmp_path / 'mine'}")
    assert done.code == 3 and "thesis.txt" in done.last_line and not done.folders
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
