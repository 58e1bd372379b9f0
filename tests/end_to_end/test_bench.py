"""mode=bench, verify and reproduce as a user runs them: children that end badly, names that folders cannot have, folders that moved."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.end_to_end.conftest import DATA, ROOT, Done, Strata

TINY = (
    "model=gguf", f"model.source={DATA / 'tiny-q2_0.gguf'}", f"workload.token_ids_file={DATA / 'oracle' / 'tiny-q2_0.short.npz'}",
    "decode.max_new_tokens=2",
)  # fmt: skip
ONE_EACH = ("mode=bench", "bench.pairs=1", "bench.warm_up=false", "bench.metrics=[ready_s,startup.copy_s]")


def document(done: Done, name: str = "bench.json") -> Any:
    (path,) = done.root.glob(f"*/*/{name}")
    return json.loads(path.read_text(encoding="utf-8"))


def marks(done: Done) -> dict[str, str]:
    return {run["arm"]: run["mark"] for run in document(done)["runs"]}


@pytest.fixture
def other_build(tmp_path: Path) -> Path:
    """Another checkout of this project, to be spoilt; kernels and configs are this one's."""
    folder = tmp_path / "other build"
    shutil.copytree(ROOT / "strata_recipes", folder / "strata_recipes", ignore=shutil.ignore_patterns("__pycache__", "assets"))
    for link in ("kernels_numba", "conf", "strata_recipes/assets"):
        (folder / link).symlink_to(ROOT / link)
    return folder


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{path.name} has no {before!r} any more"
    path.write_text(text.replace(before, after), encoding="utf-8")


@pytest.mark.usefixtures("forked")
def test_arms_that_are_refused_or_compute_otherwise(inside: Strata) -> None:
    other = "bench.arms.other=[decode.max_new_tokens=1]"
    done = inside(*TINY, *ONE_EACH, "bench.arms.base=[]", "bench.arms.refused=[kv.max_context=1]", other)
    assert done.code == 2, done.err
    assert marks(done) == {"base": "counted", "refused": "refused", "other": "other tokens"}
    found = document(done)
    assert found["identity"]["tokens_md5"] == "differ" and found["arms"]["other"]["figures"]["ready_s"] is None
    (refused,) = [run for run in found["runs"] if run["arm"] == "refused"]
    assert refused["exit_code"] == 2 and "kv.max_context=1" in refused["why"]
    assert "arm refused has no run that counts" in done.last_line and "kv.max_context=1" in done.last_line
    assert document(done, "status.json")["exit_code"] == 2


def test_an_arm_of_another_build_that_falls_back_or_is_killed(inside: Strata, other_build: Path, tmp_path: Path) -> None:
    """The other build lacks a key of the schema, and the drive refuses it direct reads; a third kills itself once it has started."""
    killed = Path(shutil.copytree(other_build, tmp_path / "killed", symlinks=True))
    edit(other_build / "strata_recipes" / "config" / "bench_schema.py", "    warm_up: bool", "    warmed: bool")
    refusing = "def open_handles(*_, **__):\n    raise Refused('planted')\n\n\ndef stage_bytes"
    edit(other_build / "strata_recipes" / "engine" / "startup_unbuffered.py", "def stage_bytes", refusing)
    suicide = "    folder.started()\n    __import__('os').kill(__import__('os').getpid(), 9)\n"
    edit(killed / "strata_recipes" / "modes" / "run.py", "    folder.started()\n", suicide)
    arms = ("bench.arms.other=[]", "bench.arms.killed=[]")
    places = (f"bench.checkouts.other='{other_build}'", f"bench.checkouts.killed='{killed}'")
    done = inside(*TINY, *ONE_EACH, *arms, *places, "startup=unbuffered", "experts=resident")
    assert done.code == 5, done.err
    assert marks(done) == {"other": "fell back", "killed": "killed"}
    whys = {run["arm"]: run["why"] for run in document(done)["runs"]}
    assert "fell back to mapped (planted)" in whys["other"] and whys["killed"] == "ended by signal 9"
    assert document(done)["arms"]["killed"]["figures"]["ready_s"] is None


def test_a_key_that_the_other_build_lacks_is_refused_where_the_arm_sets_it(inside: Strata, other_build: Path) -> None:
    edit(other_build / "strata_recipes" / "config" / "schema.py", "    depth: int = ", "    deep: int = ")
    done = inside(*TINY, *ONE_EACH, "bench.arms.a=[startup.depth=3]", "bench.arms.b=[]", f"bench.checkouts.a='{other_build}'")
    assert done.code == 2 and "has no startup.depth, which this arm sets" in done.last_line


def test_the_watchdog_stops_what_takes_the_pcs_ram(inside: Strata) -> None:
    done = inside(*TINY, *ONE_EACH, "bench.arms.a=[]", "bench.arms.b=[]", "bench.stop_below=999TB", "bench.stop_after_s=0.3")
    assert done.code == 4, done.err
    found = document(done)
    run, _ = found["runs"]
    assert run["mark"] == "stopped" and "available RAM stayed under" in run["why"] and run["lowest_available_bytes"] > 0
    assert found["not_measured"][0].startswith("Pair 1, a is in no mean: stopped")
    assert list(done.root.glob("*/*/report.html")), "a report tells it all the same"


NAMES = {"🐘 é/b": [], "x" * 300: ["startup=mapped"], "con": ["experts=mapped"]}


def test_names_that_no_folder_can_have_under_a_narrow_locale(strata: Strata, inside: Strata, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    config = {"defaults": ["config", "_self_"], "bench": {"arms": NAMES}}
    (mine / "con.yaml").write_text(yaml.dump(config, allow_unicode=True, sort_keys=False), encoding="utf-8")
    narrow = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = strata("--config-dir", str(mine), "--config-name", "con", *TINY, *ONE_EACH, "bench.cache=cold", env=narrow)
    assert done.code == 0, done.err
    found = document(done)
    assert list(found["arms"]) == list(NAMES) and set(marks(done).values()) == {"counted"}
    folders = [run["folder"] for run in found["runs"]]
    assert [folder.split("/")[1] for folder in folders] == ["01-1-b", "01-2-" + "x" * 40, "01-3-_con"]
    assert "🐘 é" in done.out
    assert all(run["cached_before_bytes"] == 0 for run in found["runs"])
    (bench,) = done.root.glob("*/*/bench.json")
    for path in bench.parent.rglob("resolved.yaml"):
        assert "${" not in path.read_text(encoding="utf-8"), "no late resolver"
    text = (bench.parent / "report.html").read_text(encoding="utf-8")
    assert "🐘 é" in text and str(tmp_path) not in text

    moved = Path(shutil.move(bench.parent, tmp_path / "moved é"))
    again = inside("--config-dir", str(moved / folders[0]), "--config-name", "resolved", root="again")
    assert again.code == 0, again.err
    assert again.json("identity.json") == json.loads((moved / folders[0] / "identity.json").read_text())


@pytest.mark.usefixtures("forked")
def test_a_bench_and_its_runs_are_reproduced(inside: Strata) -> None:
    first = inside(*TINY, *ONE_EACH, "bench.arms.a=[startup=unbuffered,experts=resident]", "bench.arms.b=[]")
    assert first.code == 0, first.err
    (bench,) = (path.parent for path in first.root.glob("*/*/bench.json"))
    resolved = yaml.safe_load((bench / "resolved.yaml").read_text())
    assert resolved["bench"]["arms"] == {"a": ["experts.mode=resident", "startup.strategy=unbuffered"], "b": []}
    done = inside("mode=reproduce", f"result='{bench}'", root="again")
    assert done.code == 0, done.err
    found = document(done, "reproduce.json")
    assert found["equal"] == ["end", "bench identity", "arm a", "arm b"] and found["differ"] == []
    assert [row[0] for row in found["figures"]] == [f"{arm}, {name}" for arm in "ab" for name in ("ready_s", "startup.copy_s")]


def change(path: Path, key: str, value: Any) -> None:
    data = json.loads(path.read_text())
    *sections, name = key.split("/")
    part = data
    for section in sections:
        part = part[section]
    assert part[name] != value
    part[name] = value
    path.write_text(json.dumps(data))


@pytest.mark.usefixtures("forked")
def test_reproduce_says_equal_and_names_what_was_changed(inside: Strata, tmp_path: Path) -> None:
    first = inside(*TINY, "experts.verify=true")
    assert first.code == 0, first.err
    folder = Path(shutil.move(first.folder, tmp_path / "kept"))
    done = inside("mode=reproduce", f"result='{folder}'", root="equal")
    assert done.code == 0, done.err
    equal = ["end", "plan", "tokens_md5", "first_logits_md5", "slots_checksum", "ram_checksum", "pack_id"]
    assert document(done, "reproduce.json")["equal"] == equal
    change(folder / "machine.json", "facts/cpu.cores/value", 999)
    change(folder / "machine.json", "software/packages/numpy", "1.0")
    change(folder / "identity.json", "tokens_md5", "0" * 32)
    text = (folder / "resolved.yaml").read_text()
    (folder / "resolved.yaml").write_text(text.replace("cores: ", "cores: 1"))
    done = inside("mode=reproduce", f"result='{folder}'", root="changed")
    assert done.code == 5, done.err
    found = document(done, "reproduce.json")
    assert any(line.startswith("cpu.cores: 999 there") for line in found["facts"])
    assert any(line.startswith("software.packages.numpy '1.0' there") for line in found["facts"])
    assert any(line.startswith("plan: ") for line in found["differ"]) and any(line.startswith("tokens_md5: ") for line in found["differ"])
    assert "not reproduced: plan: " in done.last_line and "cpu.cores: 999 there" in done.last_line


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("mode=reproduce", "result=/nowhere"), "/nowhere holds no resolved.yaml"),
        (("mode=reproduce", "result=x", "model=demo"), "model does not apply to mode=reproduce"),
        (("mode=verify", "kv=fp16"), "kv does not apply to mode=verify"),
        (("mode=verify", "verify.only=[startup_identiti]"), "startup_identity"),
        (("mode=verify", "verify.claims=/nowhere.yaml"), "/nowhere.yaml cannot be read"),
        (("mode=bench", "bench.arms.b=[]", "bench.arms.a=[mode=plan]"), "bench.arms.a sets mode"),
        (("mode=bench", "bench.arms.b=[]", "bench.arms.a=[startup=mappd]"), "bench.arms.a: startup=mappd"),
        (("mode=bench", "bench.arms.a=[]", "bench.arms.b=[]", "bench.metrics=[redy_s]"), "ready_s"),
        (("mode=bench", "bench.arms.a=[]", "bench.arms.b=[]", "bench.checkouts.a=/nowhere"), "holds no strata_recipes/modes/entry.py"),
        (("mode=bench", "bench.arms.a=[]", "bench.arms.b=[]", "model=qwen38_flash_next_q2_0"), "has no weights to run"),
    ],
)
def test_what_cannot_apply_is_refused_before_anything_runs(inside: Strata, words: tuple[str, ...], expected: str) -> None:
    done = inside(*words)
    assert done.code in (2, 3) and expected in done.last_line, done.last_line
    assert not list(done.root.glob("*/*")), "a bench that never began leaves no folder"


def test_verify_holds_and_fails_once_a_bound_is_tightened_past_the_truth(inside: Strata, tmp_path: Path) -> None:
    command = f"python run.py mode=plan {' '.join(TINY)} experts=resident startup=unbuffered"
    small = {"says": "So it is.", "size": "small"}
    claim = small | {"name": "copy", "command": command, "metric": "plan.json:startup.copy_bytes"}
    printed = small | {"name": "told", "command": "python -c 'print(\"rate: 0.93 of 1\")'", "metric": "printed:rate:"}
    path = tmp_path / "claims.yaml"
    most = (DATA / "tiny-q2_0.gguf").stat().st_size
    path.write_text(yaml.dump({"claims": [claim | {"bound": f"< {most}"}, printed | {"bound": ">= 0.9"}]}))
    done = inside("mode=verify", f"verify.claims='{path}'")
    assert done.code == 0, done.err
    first, second = document(done, "verify.json")
    assert first["holds"] and second["holds"] and second["value"] == 0.93
    truth = first["value"]
    assert truth > 0
    path.write_text(yaml.dump({"claims": [claim | {"bound": f"< {truth}"}, printed | {"bound": "> 0.93"}]}))
    done = inside("mode=verify", f"verify.claims='{path}'", root="tightened")
    assert done.code == 5, done.err
    assert f"claim copy no longer holds: plan.json:startup.copy_bytes is {truth:,}, wanted < {truth}" in done.last_line
    assert [each["holds"] for each in document(done, "verify.json")] == [False, False]
    assert document(done, "status.json")["state"] == "failed"


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_ends_the_bench_and_its_run(cache: Path, tmp_path: Path) -> None:
    words = [
        *TINY,
        *ONE_EACH,
        "bench.arms.a=[decode.max_new_tokens=4000,decode.stop_at_eos=false]",
        "bench.arms.b=[]",
        f"results.root={tmp_path}",
    ]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *words], env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
    )  # fmt: skip
    while process.poll() is None and not list(tmp_path.glob("bench/*/runs/*/run/*/status.json")):
        time.sleep(0.1)
    family = psutil.Process(process.pid).children(recursive=True)
    assert family, process.communicate()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130 and "interrupted" in errors.splitlines()[-1]
    assert not [child for child in family if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    (status,) = tmp_path.glob("bench/*/status.json")
    assert json.loads(status.read_text())["state"] == "stopped"
