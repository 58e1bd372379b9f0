"""mode=profile: what it counts, that merging adds, and that the plan uses its counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from strata_recipes.config.compose import compose_config, config_hash
from strata_recipes.config.schema import Model
from strata_recipes.errors import PackError
from strata_recipes.modes.entry import main
from strata_recipes.modes.models import ready_pack
from strata_recipes.pack.profile import load_counts, load_profile, save_profile, with_profile
from strata_recipes.simulate.heat import hot_share, hottest_first, skew_of
from strata_recipes.simulate.routing import chances
from strata_recipes.text.tokenizer import Tokenizer

TEXTS = {"a.txt": "One day, Carl went to the boat to look for a red brush.", "b.txt": "Zoe found a brown ball near the cave. " * 4}


def test_the_skew_of_a_known_router_is_found() -> None:
    """Counts drawn from the routing model itself give its skew back."""
    for skew in (0.2, 0.45, 1.1):
        counts = np.round(np.array([chances(512, 10, skew)]) * 1e6).astype(np.int64)
        assert skew_of(counts, 10) == pytest.approx(skew, rel=1e-3)
    assert skew_of(np.full((4, 64), 7), 4) < 1e-3
    assert hot_share(np.array([[8, 1, 1, 0, 0], [0, 0, 0, 0, 10]])) == 0.9


def test_the_order_is_by_count_then_as_without_a_profile() -> None:
    assert hottest_first(np.array([[1, 3], [1, 4]])) == [(1, 1), (0, 1), (0, 0), (1, 0)]


def test_texts_are_counted_merged_and_planned_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / name) for name in TEXTS]
    root = f"results.root={tmp_path}/results"

    def counted(out: str, *words: str) -> Path:
        assert main(["mode=profile", root, f"profile.out={tmp_path}/{out}", "prefill.chunk=16", *words]) == 0, capsys.readouterr().err
        return tmp_path / out

    both = counted("both.npz", f"profile.files=[{','.join(files)}]")
    (folder,) = (tmp_path / "results" / "profile").iterdir()
    asked = compose_config(["mode=profile", f"profile.out={tmp_path}/both.npz", "prefill.chunk=16", f"profile.files=[{','.join(files)}]"])
    kept = compose_config([], str(folder), "resolved")
    assert kept.workload == asked.workload, "what was asked for, not the longest of the texts that were read"
    assert folder.name.endswith(f"_{config_hash(asked)}") and config_hash(kept) == config_hash(asked)
    first = counted("first.npz", f"profile.files=[{files[0]}]", "prefill.order=layer_major", "prefill.super_chunk=16")
    merged = counted("merged.npz", f"profile.files=[{files[1]}]", f"profile.merge={first}")
    with ready_pack(Model()) as pack:
        index, tokenizer = pack.index, Tokenizer(pack.tokenizer_path or Path())
        counts = load_counts(both, index)
        assert counts is not None
        tokens = sum(len(tokenizer.encode(text)) for text in TEXTS.values())
        assert (counts.sum(axis=1) == tokens * index.geometry.top_k).all()
        added = load_counts(merged, index)
        assert added is not None and (added == counts).all(), "one by one or together, in either order: the same"
        order = load_profile(both, index)
        assert [int(counts[pair]) for pair in order] == sorted(counts.reshape(-1).tolist(), reverse=True)
        assert with_profile(index, both, order).heat == tuple(float(f"{mean:.9g}") for mean in np.sort(counts)[:, ::-1].mean(0))
        save_profile(tmp_path / "order.npz", order)
        assert load_counts(tmp_path / "order.npz", index) is None
        with pytest.raises(PackError, match="is no profile"):
            load_counts(tmp_path / "a.txt", index)
    capsys.readouterr()
    assert main(["mode=plan", root, f"experts.profile={both}", "hardware=rtx3060_6gb"]) == 0
    assert "predicted with the profile's counts of choices" in " ".join(capsys.readouterr().out.split())
    assert main(["mode=profile", root, f"profile.files=[{files[0]}]", f"profile.merge={tmp_path}/order.npz"]) == 3
    assert f"strata: profile.merge={tmp_path}/order.npz says which experts are hottest, but not by how much" in capsys.readouterr().err
    assert main(["mode=profile", root, f"profile.files=[{files[0]}]", "profile.merge=~nobody-has-this-name/x"]) == 3
    assert "strata: profile.merge=~nobody-has-this-name/x does not exist" in capsys.readouterr().err
    assert main(["mode=profile", root]) == 2


def test_a_text_that_cannot_be_read_is_told_as_one_of_the_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text(TEXTS["a.txt"])
    (tmp_path / "empty.txt").touch()
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    told = {
        "no.txt": (3, "cannot be read: No such file or directory (errno 2)"),
        ".": (3, "cannot be read: Is a directory (errno 21)"),
        "empty.txt": (2, "is empty: 0 tokens"),
        "latin.txt": (3, "is not UTF-8: byte 0xe9 at offset 3 of 4"),
    }
    for name, (code, what) in told.items():
        path = f"{tmp_path}/{name}"
        assert main(["mode=profile", f"results.root={tmp_path}/results", f"profile.files=[{tmp_path}/a.txt,{path}]"]) == code
        assert f"strata: {path} (profile.files) {what}" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("out", "what"),
    [("nowhere/mine.npz", "would lie in {}/nowhere, which is no folder"), ("taken", "is a folder"), ("file/mine.npz", "is no folder")],
)
def test_where_the_profile_goes_is_checked_before_anything_is_packed_or_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], out: str, what: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text("One day.")
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("")
    words = ["mode=profile", f"profile.files=[{tmp_path}/a.txt]", f"profile.out={tmp_path}/{out}", f"results.root={tmp_path}/results"]
    assert main(words) == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"profile.out={tmp_path}/{out}" in last and what.format(tmp_path) in last and "results.root" not in last
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "file", "taken"], "no results folder, and no pack in the cache"
