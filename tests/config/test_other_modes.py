"""Settings of modes that do not run: each is told, whoever reads it, and none where its own mode runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata_recipes.config.choices import ModeName
from strata_recipes.config.compose import compose_config, leaves
from strata_recipes.config.other_modes import READERS, passed_over, unread_words
from strata_recipes.config.schema import Config
from strata_recipes.modes.entry import main

STATED = {
    "bench.pairs": "bench.pairs=5",
    "verify.size": "verify.size=all",
    "result": "result=results/run/x",
    "calibrate.rounds": "calibrate.rounds=7",
    "profile.files": "profile.files=[a.txt]",
    "mode.table": "mode.table=seed_1670",
    "mode.profiles": "mode.profiles=true",
}
NEEDS = {ModeName.bench: ["bench.arms.a=[]", "bench.arms.b=[kv=fp16]"], ModeName.reproduce: ["result=x"]}


def test_every_setting_of_one_mode_has_a_reader() -> None:
    """A section that a mode alone reads and that is forgotten here would be ignored without a word."""
    shared = {"hardware", "model", "experts", "startup", "prefill", "decode", "kv", "compute", "workload", "emulate", "results", "sweep"}
    found = {leaf.key for leaf in leaves(Config) if leaf.key.partition(".")[0] not in shared} - {"mode.name"}
    assert found == {key for key in found if key in READERS or key.partition(".")[0] in READERS}


@pytest.mark.parametrize("key", STATED)
def test_a_setting_is_told_in_every_mode_but_its_own(key: str) -> None:
    reader = next(reader for part, reader in READERS.items() if key == part or key.startswith(f"{part}."))
    config = compose_config([STATED[key]])
    for mode in ModeName:
        config.mode.name = mode
        wanted = [] if mode is reader else [f"{key} does not apply to mode={mode.name}: mode={reader.name} reads it"]
        assert passed_over(config) == wanted


@pytest.mark.parametrize("mode", ModeName)
def test_nothing_is_told_where_nothing_is_stated(mode: ModeName) -> None:
    assert passed_over(compose_config([f"mode={mode.name}", *NEEDS.get(mode, [])])) == []


def test_several_settings_of_one_mode_are_one_sentence() -> None:
    config = compose_config(["bench.pairs=5", "bench.cache=cold", "profile.out=x.npz"])
    assert passed_over(config) == [
        "bench.pairs, bench.cache do not apply to mode=run: mode=bench reads them",
        "profile.out does not apply to mode=run: mode=profile reads it",
    ]


def test_a_mode_that_reads_a_part_of_the_config_says_what_it_does_not_read() -> None:
    words = ["mode=pack", "model=demo", "+kv.format=fp16", "hardware=cpu", "kv.format=fp16", "results.root=x", "bench.pairs=3"]
    assert unread_words(words, ModeName.pack) == ["kv.format, hardware do not apply to mode=pack"]
    assert unread_words(["mode=calibrate", "startup.threads=3", "model.pack=x", "kv=fp16"], ModeName.calibrate) == [
        "kv does not apply to mode=calibrate"
    ]
    assert unread_words(["workload=chat", "kv=fp16"], ModeName.profile) == ["workload does not apply to mode=profile"]
    assert unread_words(words, ModeName.run) == []


def test_the_person_at_the_keyboard_sees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ["model=qwen38_flash_next_q2_0", "hardware=rtx3060_6gb", f"results.root={tmp_path}", "profile.files=[a.txt]"]
    said = "profile.files does not apply to mode={0}: mode=profile reads it"
    assert main([*words, "mode=simulate"]) == 0
    assert f"note: {said.format('simulate')}" in capsys.readouterr().err.splitlines()
    assert main([*words, "mode=plan"]) == 0
    out, err = capsys.readouterr()
    assert said.format("plan") in " ".join(out.split()) and said.format("plan") not in err, "once, among the plan's notes"
