"""Machine code on disk: whole or absent, and never a reason to stop."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from kernels_numba import cubins
from kernels_numba.cubins import Cubin, keep, kept

CODE = Cubin("_ZN3abc", b"\x7fELF\n\x00more\n" * 40)


def test_what_is_kept_is_found_under_its_key_alone(tmp_path: Path) -> None:
    keep("k", CODE, tmp_path / "new" / "folder")
    assert kept("k", tmp_path / "new" / "folder") == CODE
    assert kept("other", tmp_path / "new" / "folder") is None and kept("k", tmp_path / "nowhere") is None
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["k.cubin"]


def test_any_damage_is_seen(tmp_path: Path) -> None:
    keep("k", CODE, tmp_path)
    whole = (tmp_path / "k.cubin").read_bytes()
    for at in (0, 31, 32, 40, len(whole) - 1):
        (tmp_path / "k.cubin").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert kept("k", tmp_path) is None
        (tmp_path / "k.cubin").write_bytes(whole[:at])
        assert kept("k", tmp_path) is None
    keep("k", CODE, tmp_path)
    assert kept("k", tmp_path) == CODE


def test_a_place_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    cubins._not_kept.cache_clear()
    (tmp_path / "file").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match=r"cannot be kept, so each start compiles them again \(.*file.kernels: Not a directory\)"):
        keep("k", CODE, tmp_path / "file" / "kernels")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keep("l", CODE, tmp_path / "file" / "kernels")


def test_the_folder_is_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", str(tmp_path))
    assert cubins.folder.__wrapped__() == tmp_path / "strata_recipes" / "kernels"


def test_without_a_home_none_is_kept_where_another_user_could_write(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    cubins._not_kept.cache_clear()
    monkeypatch.delenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cubins.folder.__wrapped__() is None and kept("k", None) is None
    with pytest.warns(RuntimeWarning, match="there is no home folder: set "):
        keep("k", CODE, None)


@pytest.mark.parametrize("refused", [False, True])
def test_two_that_keep_one_kernel_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    """The second one is done before the first renames, which Windows then refuses while a third reads."""
    cubins._not_kept.cache_clear()
    replace = os.replace

    def late(partial: str, path: Path) -> None:
        monkeypatch.setattr(os, "replace", replace)
        keep("k", CODE, tmp_path)
        if refused:
            raise PermissionError(13, "Access is denied")
        replace(partial, path)

    monkeypatch.setattr(os, "replace", late)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keep("k", CODE, tmp_path)
    assert kept("k", tmp_path) == CODE and [path.name for path in tmp_path.iterdir()] == ["k.cubin"]
