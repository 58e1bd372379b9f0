from __future__ import annotations

import errno
import json
import multiprocessing
import os
import re
import shutil
import socket
import tempfile
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import yaml

from strata_recipes.errors import FileError
from strata_recipes.results import atomic
from strata_recipes.results.identity import Identity
from strata_recipes.results.machine_facts import machine_json
from strata_recipes.results.names import safe_name
from strata_recipes.results.places import without_places
from strata_recipes.results.record import Outcome, ResultsFolder
from strata_recipes.results.samples import Sample
from strata_recipes.results.status import DONE, ended
from strata_recipes.sweeps.sweep import _own_folder
from tests.results.many_folders import make_many

NOW = datetime(2026, 3, 4, 5, 6, 7)
ALL = {
    "resolved.yaml",
    "overrides.yaml",
    "machine.json",
    "plan.json",
    "metrics.json",
    "identity.json",
    "samples.csv",
    "status.json",
    "run.log",
    "README.md",
}


def make(root: Path, kind: str = "run") -> ResultsFolder:
    return ResultsFolder.make(root, kind, "0a1b2c3d", NOW)


def state(folder: ResultsFolder) -> str:
    return json.loads((folder.path / "status.json").read_text())["state"]


def test_the_name_is_mode_time_and_hash(tmp_path):
    folder = make(tmp_path / "results")
    assert folder.path == tmp_path / "results" / "run" / "2026-03-04_05-06-07_0a1b2c3d"
    assert folder.name == "run/2026-03-04_05-06-07_0a1b2c3d"
    assert make(tmp_path / "results").path.name == "2026-03-04_05-06-07_0a1b2c3d_2"


def test_eight_runs_at_once_never_share_a_folder(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, names = context.Barrier(8), context.Queue()
    workers = [context.Process(target=make_many, args=(str(tmp_path), NOW, barrier, names), daemon=True) for _ in range(8)]
    for worker in workers:
        worker.start()
    made = [names.get(timeout=300) for _ in range(40)]
    for worker in workers:
        worker.join()
    assert len(set(made)) == 40 == len(list((tmp_path / "run").iterdir()))


@pytest.mark.parametrize(
    "text", ["run", "a:b", "..", "", "con", "NUL.txt", "com1", "x" * 300, "/m/x.gguf/", "名前 🎉", "a. ", 'q?*<>|"', "e\u0301", "\u00e9"]
)
def test_names_are_safe_on_every_system(text):
    name = safe_name(text)
    assert re.fullmatch(r"[A-Za-z0-9_-]([A-Za-z0-9._-]*[A-Za-z0-9_-])?", name) and len(name.encode()) < 100
    assert name.split(".")[0].lower() not in {"con", "nul", "com1"}
    assert safe_name("run") == "run"


def test_what_reproduces_a_run_is_there_before_it_starts(tmp_path, plan, machine):
    folder = make(tmp_path)
    overrides = ["model.source=/data/模型 (1)/x.gguf", "workload.text='it''s \"x\"\n'", "a=b\udcff", "x=\x7f\u0085\u2028\ufeff"]
    folder.write_before("a: 1\n", overrides, machine_json(machine, ()), plan)
    assert {path.name for path in folder.path.iterdir()} == {"resolved.yaml", "overrides.yaml", "machine.json", "plan.json", "status.json"}
    assert yaml.safe_load((folder.path / "overrides.yaml").read_text(encoding="utf-8")) == [*overrides[:2], "a=b\ufffd", overrides[3]]
    assert (folder.path / "plan.json").read_text(encoding="utf-8") == plan.to_json()
    assert json.loads((folder.path / "status.json").read_text()) == {"state": "planned", "exit_code": None, "error": None}
    folder.started()
    assert state(folder) == "running"


def test_no_overrides_are_an_empty_list(tmp_path):
    folder = make(tmp_path)
    folder.write_before("a: 1\n", [], None, None)
    assert yaml.safe_load((folder.path / "overrides.yaml").read_text()) == []
    assert not (folder.path / "plan.json").exists()


def test_a_finished_run_leaves_everything_and_logits_when_asked(tmp_path, plan, machine, metrics):
    folder = make(tmp_path)
    folder.write_before("a: 1\n", [], machine_json(machine, ()), plan)
    folder.log("started")
    folder.log("two\nlines")
    logits = np.arange(6, dtype=np.float64).reshape(2, 3)
    folder.write_after(plan, Outcome(metrics, Identity(pack_id="ab"), [Sample(0.25, 1, 2, 3)], logits), DONE)
    assert {path.name for path in folder.path.iterdir()} == ALL | {"logits.npy"}
    np.save(tmp_path / "numpys_own.npy", logits.astype(np.float32))
    assert (folder.path / "logits.npy").read_bytes() == (tmp_path / "numpys_own.npy").read_bytes()
    saved = np.load(folder.path / "logits.npy")
    assert saved.dtype == np.float32 and saved.tolist() == logits.tolist()
    assert json.loads((folder.path / "status.json").read_text()) == {"state": "done", "exit_code": 0, "error": None}
    assert (folder.path / "run.log").read_bytes() == b"started\ntwo\nlines\n"
    assert all(b"\r" not in path.read_bytes() for path in folder.path.iterdir() if path.suffix != ".npy")


def test_a_failed_run_keeps_its_error_line(tmp_path, plan):
    folder = make(tmp_path)
    folder.write_before("a: 1\n", [], None, plan)
    folder.end(ended(3, "experts.bin is 5 bytes, wanted 9"), plan)
    assert json.loads((folder.path / "status.json").read_text()) == {
        "state": "failed",
        "exit_code": 3,
        "error": "experts.bin is 5 bytes, wanted 9",
    }
    assert "experts.bin is 5 bytes, wanted 9" in (folder.path / "README.md").read_text()
    assert "experts.bin is 5 bytes" in (folder.path / "run.log").read_text()


def test_nothing_of_this_machine_is_in_a_folder(tmp_path, plan, machine, metrics):
    folder = make(tmp_path)
    package = str(Path(atomic.__file__).resolve())
    places = [str(tmp_path), str(Path.cwd()), str(Path.home()), tempfile.gettempdir(), package, str(Path(os.__file__).parent)]
    line = "cannot read " + ", ".join(f"'{place}/cache/x y.bin'" for place in places) + f" at {package}: errno 5"
    folder.write_before("model:\n  source: models/x.gguf\n", ["model.source=models/x.gguf"], machine_json(machine, ("ram",)), plan)
    folder.log(line)
    folder.write_after(plan, Outcome(metrics, Identity(), [Sample(0, 1, 2, 3)]), ended(3, line))
    for path in folder.path.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not [place for place in [*places, socket.gethostname()] if place in text], path.name
        assert not re.search(r"(?<![\w.~>/])/\w+/\w+", text), path.name
    assert "x y.bin" in json.loads((folder.path / "status.json").read_text())["error"]


def test_a_path_of_the_config_is_the_users_to_publish(tmp_path, plan):
    folder = make(tmp_path)
    folder.write_before("model:\n  source: /data/models/x.gguf\n", [], None, plan)
    folder.end(ended(3, "/data/models/x.gguf is cut, see also /data/other/y.gguf"))
    assert json.loads((folder.path / "status.json").read_text())["error"] == "/data/models/x.gguf is cut, see also <path>/y.gguf"
    assert "source: /data/models/x.gguf" in (folder.path / "resolved.yaml").read_text()


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (r"cannot open C:\Users\ann\pack\experts.bin: errno 5", r"cannot open <path>/experts.bin: errno 5"),
        (r"\\server\share\x.gguf", "<path>/x.gguf"),
        ('{"a": "C:\\\\Users\\\\ann\\\\x"}', '{"a": "<path>/x"}'),
        ("1.6 GB/s and 3/4/5 and results/run/x, https://example.org/a/b", "1.6 GB/s and 3/4/5 and results/run/x, https://example.org/a/b"),
        ("/opt/models/x.gguf", "<path>/x.gguf"),
        ("~/x/y and ./a/b and ../c/d", "~/x/y and ./a/b and ../c/d"),
    ],
)
def test_places_of_other_systems_go_and_plain_text_stays(text, clean):
    assert without_places(text) == clean


def test_a_root_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileError, match=r"file .*set results\.root to a folder that can be written"):
        make(tmp_path / "file")


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    atomic.write_text(path, "old\n")

    def full(file) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(FileError, match=r"plan\.json cannot be written \(No space left on device, errno 28; .* has [\d,]+ bytes free\)"):
        atomic.write_binary(path, full)
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"] and path.read_bytes() == b"old\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_drive_is_told_with_what_is_free_and_what_is_wanted(tmp_path, monkeypatch, plan, metrics):
    folder, usage = make(tmp_path), shutil.disk_usage(tmp_path)
    rows = np.arange(6_000, dtype=np.float32).reshape(2, 3_000)
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda place: usage._replace(free=1_024))
    monkeypatch.setattr(Path, "open", lambda self, mode: open("/dev/full", mode))

    def told(work) -> str:
        with pytest.raises(FileError) as error:
            work()
        assert not list(folder.path.iterdir())
        return str(error.value)

    free = f"(No space left on device, errno 28; {folder.path} has 1,024 bytes free"
    root = "set results.root to a folder with room"
    outcome = Outcome(metrics, Identity(), logits=rows)
    assert told(lambda: folder.write("plan.json", "é" * 1_000)) == f"plan.json cannot be written {free}, 2,000 are wanted): {root}"
    assert told(lambda: folder.write_after(plan, outcome, DONE)) == f"logits.npy cannot be written {free}, 24,000 are wanted): {root}"
    assert told(lambda: folder.log("ready")) == f"run.log cannot be written {free}, 6 are wanted): make room under results.root"


def test_a_full_drive_that_takes_no_folder_is_told_with_what_is_free(tmp_path, monkeypatch):
    def full(*_, **__) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    new, usage = tmp_path / "new", shutil.disk_usage(tmp_path)
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda place: usage._replace(free=1_024))
    monkeypatch.setattr(Path, "mkdir", full)
    makers = {
        f"no results folder can be made in {new}": lambda: make(new),
        f"results.folder={new} cannot be made": lambda: ResultsFolder.at(new),
        f"no folder for the sweep can be made in {new}": lambda: _own_folder(new / "mine"),
    }
    for words, maker in makers.items():
        with pytest.raises(FileError) as told:
            maker()
        assert str(told.value).startswith(f"{words} (No space left on device, errno 28; {tmp_path} has 1,024 bytes free): ")
