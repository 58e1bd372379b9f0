"""Where files may lie: odd names, the home folder, a read-only drive, no home at all."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Strata
from tests.faults.conftest import Packed

PLAN = ("model=gguf", "hardware=rtx3060_6gb", "mode=plan")
ODD = ["a=b", "models (1)", "#1", "it's", "模型", "a,b"]  # all characters: config/test_resolving.py


@pytest.mark.parametrize("name", ODD)
def test_a_folder_of_any_name_quoted_as_the_refusal_says(name: str, inside: Strata, tiny: Packed, ids_file: Path, tmp_path: Path) -> None:
    """Bare it works, or the refusal names the one way of writing that does."""
    folder = tmp_path / name
    folder.mkdir()
    (folder / "m.gguf").symlink_to(tiny.made.path)
    path = folder / "m.gguf"
    done = inside(*PLAN, f"model.source={path}", f"workload.token_ids_file={ids_file}")
    if done.code:
        assert done.code == 2 and "Traceback" not in done.err
        _, _, advised = done.last_line.partition("write ")
        word = advised[: advised.index(" in sh,")]
        assert "add model.source" not in done.last_line, "it was stated"
        (argument,) = subprocess.run(["sh", "-c", f"printf %s {word}"], capture_output=True, text=True, check=True).stdout.split("\n")
        done = inside(*PLAN, argument, f"workload.token_ids_file={ids_file}", root="again")
    assert done.code == 0, done.err


def test_the_home_folder_needs_no_quotes(
    inside: Strata, tiny: Packed, ids_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shells leave the ~ of model.source=~/m.gguf to us."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m.gguf").symlink_to(tiny.made.path)
    done = inside(*PLAN, "model.source=~/m.gguf", "workload.token_ids_file=~/ids.npy")
    assert done.code == 0, done.err
    done = inside(*PLAN, "model.source=~nobody-of-that-name/m.gguf", f"workload.token_ids_file={ids_file}", root="other")
    assert done.code == 3 and "Traceback" not in done.err and not done.folders
    done = inside(*PLAN, f"model.source={tiny.made.path}", "workload.token_ids_file=~nobody-of-that-name/ids.npy", root="third")
    assert done.code == 3 and "~nobody-of-that-name" in done.last_line and not done.folders


def test_moving_the_working_folder_is_refused(inside: Strata) -> None:
    """Relative paths would not resolve any more."""
    done = inside("mode=plan", "hardware=rtx3060_6gb", "hydra.job.chdir=true")
    assert done.code == 2 and "hydra.job.chdir=true would move the working folder" in done.last_line


@pytest.fixture
def read_only(tiny: Packed, tmp_path: Path) -> Iterator[Path]:
    """A drive mounted read-only, with the model and its pack. Its errno is 30, which Python takes for no PermissionError."""
    folder = tmp_path / "drive"
    shutil.copytree(tiny.folder, folder / "pack")
    shutil.copy(tiny.made.path, folder / "f1.gguf")
    mount = ["mount", "--bind", str(folder), str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_read_only_drive_is_enough_to_run_from(strata: Strata, read_only: Path, ids_file: Path, tmp_path: Path) -> None:
    """No home folder either: the cache is not needed where the pack is there."""
    before = {path: path.stat().st_mtime_ns for path in read_only.rglob("*")}
    words = [
        "model=gguf",
        f"model.source={read_only / 'f1.gguf'}",
        f"model.pack={read_only / 'pack'}",
        f"workload.token_ids_file={ids_file}",
    ]
    env = {"HOME": str(read_only / "home"), "XDG_CACHE_HOME": "", "NUMBA_CACHE_DIR": ""}
    done = strata(*words, "hardware=cpu", "decode.max_new_tokens=2", env=env)
    assert done.code == 0, done.err
    assert {path: path.stat().st_mtime_ns for path in read_only.rglob("*")} == before


@pytest.mark.parametrize("pack", ["pack", "other"])
def test_packing_there_is_refused_with_folder_and_errno(pack: str, inside: Strata, read_only: Path) -> None:
    done = inside("mode=pack", "model=gguf", f"model.source={read_only / 'f1.gguf'}", f"model.pack={read_only / pack}")
    assert done.code == 3 and str(read_only / pack) in done.last_line and "errno 30" in done.last_line
