"""experts.profile_save: what a reply chose is kept whole, whatever ends the run, and the next run begins with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from strata_recipes.config.schema import Model
from strata_recipes.modes.entry import main
from strata_recipes.modes.models import ready_pack
from strata_recipes.modes.reply import Reply
from strata_recipes.pack.profile import learned_on, load_counts, load_profile, save_profile

ROOT = Path(__file__).parents[2]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A short run of the demo."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    return ["mode=run", f"results.root={tmp_path}/results", "decode.stop_at_eos=false", "decode.max_new_tokens=12"]


def only(folder: Path, name: str) -> dict[str, object]:
    (found,) = folder.glob(f"results/run/*/{name}")
    return dict(json.loads(found.read_text()))


def test_a_run_learns_and_the_next_begins_with_it(words: list[str], tmp_path: Path) -> None:
    first, second = tmp_path / "first.npz", tmp_path / "second.npz"
    assert main([*words, f"experts.profile_save={first}", "experts.slots=40"]) == 0
    with ready_pack(Model()) as pack:
        g, model = pack.index.geometry, learned_on(first, pack.index)
        counts = load_counts(first, pack.index)
        assert model is not None and model.pack_id == pack.index.pack_id
        assert counts is not None and (counts.sum(axis=1) == 11 * g.top_k).all()
        hottest = load_profile(first, pack.index)[0]
        assert counts[hottest] == counts.max()
        again = [f"experts.profile={first}", f"experts.profile_save={second}", "experts.slots=40", "experts.adapt.every=4"]
        assert main([*words, *again, f"results.folder={tmp_path}/results/run/again"]) == 0
        added = load_counts(second, pack.index)
        assert added is not None and (added == 2 * counts).all(), "the same reply, whatever moves: the same choices"
    told = json.loads((tmp_path / "results/run/again/metrics.json").read_text())["decode"]
    assert told["swaps"] >= 0 and told["vram_hits"] > 0
    plan = json.loads((tmp_path / "results/run/again/plan.json").read_text())
    assert plan["experts"]["adapt"] == {"every": 4, "swaps": 32, "decay": 0.9}
    assert any("experts.adapt" in note for note in plan["notes"]) and not any("names no model" in note for note in plan["notes"])
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (MemoryError(), 4)])
def test_a_run_that_ends_early_keeps_what_it_learned(
    error: BaseException, code: int, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = Reply.push

    def stopped(self: Reply, token: int) -> None:
        if len(self.tokens) == 5:
            raise error
        push(self, token)

    monkeypatch.setattr(Reply, "push", stopped)
    path = tmp_path / "early.npz"
    assert main([*words, f"experts.profile_save={path}"]) == code
    with ready_pack(Model()) as pack:
        counts = load_counts(path, pack.index)
        assert counts is not None and (counts.sum(axis=1) == 5 * pack.index.geometry.top_k).all()


def test_a_reply_of_one_token_leaves_the_file_as_it_is(words: list[str], tmp_path: Path) -> None:
    assert main([*words, f"experts.profile_save={tmp_path}/none.npz", "decode.max_new_tokens=1"]) == 0
    assert not (tmp_path / "none.npz").exists()
    (log,) = tmp_path.glob("results/run/*/run.log")
    assert "no token after the first was written" in log.read_text()


@pytest.mark.parametrize("place", ["gone/x.npz", "."])
def test_a_place_that_cannot_be_is_refused_before_the_run(
    place: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, f"experts.profile_save={tmp_path}/{place}"]) == 3
    assert "experts.profile_save=" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_profile_without_a_name_is_taken_with_a_note_and_another_models_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ready_pack(Model()) as pack:
        save_profile(tmp_path / "old.npz", pack.order(), np.arange(1, 385)[::-1])
    plan = ["mode=plan", words[1], f"experts.profile={tmp_path}/old.npz"]
    assert main(plan) == 0
    assert "names no model: it is taken for one of demo" in " ".join(capsys.readouterr().out.split())
    assert main([*words, f"experts.profile_save={tmp_path}/mine.npz"]) == 0
    other = ["model=synthetic", "workload=synthetic", "workload.tokens=20", f"experts.profile={tmp_path}/mine.npz"]
    assert main(["mode=plan", words[1], *other]) == 3
    said = capsys.readouterr().err
    assert "was learned on demo (" in said and "the model here is synthetic (" in said


def test_a_kill_at_any_moment_leaves_the_old_profile_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "kept.npz"
    done = subprocess.run(
        [sys.executable, "-m", "tests.modes.kill_while_saving", str(path), "7"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    steps = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(steps) > 50 and [killed for _, killed, _ in steps] == [1] * (len(steps) - 1) + [0]
    left = [seed for _, _, seed in steps]
    assert left == sorted(left) and set(left) == {1, 2}, "the old one up to one moment, the new one from there on, nothing else ever"
