"""A sweep lasts: what is refused, crashes or is stopped leaves the rest running, is counted, and can be taken up again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import yaml

from strata_recipes.config.compose import compose_config, config_hash
from strata_recipes.errors import FileError
from strata_recipes.results.record import ResultsFolder
from strata_recipes.sweeps.earlier import done_folder
from strata_recipes.sweeps.sweep import _own_folder
from strata_recipes.sweeps.turns import _take, turn
from tests.sweeps.conftest import ROOT, Sweep, Swept

CRASH = """
import os, signal, sys
if any("002_" in word for word in sys.orig_argv):
    os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    for name in ("a", "b", "ünï🙂"):
        (tmp_path / f"{name}.txt").write_text("a small owl", encoding="utf-8")
    return tmp_path


def test_one_refused_one_crashed_and_taken_up_again(sweep: Sweep, texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a value that is only known late, and under a locale that has no UTF-8."""
    (texts / "crash").mkdir()
    (texts / "crash" / "sitecustomize.py").write_text(CRASH)
    words = ("prefill.super_chunk=16,auto", "prefill.order=layer_major,chunked")
    more = ("model.scale_of=null", "model.note='job ${hydra:job.num}'", "workload.text_file='ünï🙂.txt'")
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(texts / "crash"))
        patch.setenv("LC_ALL", "C")
        patch.setenv("PYTHONUTF8", "0")
        first = sweep(*words, *more)
    assert first.states == ["done", "refused", "failed", "done"], first.err
    assert first.counts == {"planned": 4, "done": 2, "refused": 1, "failed": 1}
    assert first.code == first.summary["exit_code"] == 2, "the first job's that is not 0"
    assert "sweep: 4 planned, 2 done, 1 refused, 1 failed, 0 stopped" in first.out
    assert "prefill.super_chunk=16 does not go with prefill.order=chunked" in first.jobs[1]["status"]["error"]
    assert first.jobs[2]["status"]["exit_code"] == 4 and "ended by signal 11" in first.jobs[2]["status"]["error"]
    for number in (0, 3):
        folder = first.folder / first.jobs[number]["folder"]
        resolved = (folder / "resolved.yaml").read_text(encoding="utf-8")
        assert "${" not in resolved and f"job {number}" in resolved
        assert yaml.safe_load(resolved)["results"]["folder"] is None, "a replay makes a folder of its own"
        assert "ünï🙂.txt" in (folder / "overrides.yaml").read_text(encoding="utf-8")
        assert "Plan: demo" in (folder / "console.log").read_text(encoding="utf-8")

    again = sweep(*words, *more, "sweep.resume=true", name="two")
    assert again.states == ["done", "refused", "done", "done"], again.err
    assert again.counts == {"planned": 4, "done": 3, "resumed": 2, "refused": 1}
    assert [job["resumed"] for job in again.jobs] == [True, False, False, True]
    assert again.jobs[0]["folder"] == f"../one/{first.jobs[0]['folder']}"
    assert {row["key"] for row in again.long} >= {"predicted.ready_s", "experts.ram_blobs"}
    assert [row["state"] for row in again.long if row["key"] == ""] == ["refused"]


def test_a_setting_of_sweeps_is_refused_in_a_single_run_and_a_sweep_without_aim(sweep: Sweep) -> None:
    alone = sweep("sweep.resume=true", flag="")
    assert alone.code == 2 and "sweep.resume, sweep.jobs_per_gpu and sweep.metrics apply to a sweep only: add -m" in alone.err
    unknown = sweep("sweep.metrics=[decode.token_per_s]", "prefill.chunk=64,128")
    assert unknown.code == 2 and "'decode.token_per_s' is no key of metrics.json, nearest" in unknown.err
    aimless = sweep("hydra/sweeper=optuna", "prefill.chunk=64,128")
    assert aimless.code == 2 and "this sweeper optimizes, but not what" in aimless.err


SLOW = """
import os, sys, time
if any("sweep_child" in word for word in sys.orig_argv):
    with open({pids!r}, "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    time.sleep(600)
"""


def test_a_sweep_that_is_interrupted_ends_its_job_and_says_what_it_has(cache: Path, tmp_path: Path) -> None:
    """Ctrl-C while the first of two jobs works: no process stays, and the second never begins. In a process of its own, not in pytest's."""
    pids, folder = tmp_path / "pids", tmp_path / "results" / "one"
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW.format(pids=str(pids)))
    words = ("-m", "mode=plan", "prefill.chunk=64,128", f"results.root={folder.parent}", f"hydra.sweep.dir={folder}")
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
        env=os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(tmp_path / "slow")}, cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    while process.poll() is None and not (pids.exists() and pids.read_text().endswith("\n")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    ended = Swept(process.returncode, out, err, folder)
    assert ended.code == 130, err
    assert ended.counts == {"planned": 2, "stopped": 1, "missing": 1}
    (pid,) = pids.read_text().split()
    assert not psutil.pid_exists(int(pid))


def test_a_job_ends_with_the_sweep_that_is_killed(tmp_path: Path) -> None:
    """The pipe that says nothing: closed, the job ends as by Ctrl-C."""
    script = (
        "import time; from strata_recipes.modes import sweep_child; sweep_child.process = lambda: [time.sleep(0.05) for _ in range(9000)]\n"
        "sweep_child.main()"  # in short sleeps: a signal just before one long sleep would not end it
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert child.stdin
    child.stdin.close()
    assert child.wait(300) != 0
    assert child.stderr
    child.stderr.close()


def test_many_sweeps_and_jobs_never_share_a_folder(tmp_path: Path) -> None:
    """Eight at once, of one name."""
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: _own_folder(tmp_path / "con"), range(8)))
    assert len(set(folders)) == 8 and all(folder.is_dir() for folder in folders)
    first = ResultsFolder.at(tmp_path / "mine")
    first.write_before("a: 1\n", ["a=1"], None, None)
    again = ResultsFolder.at(tmp_path / "mine")  # made ready: whoever was started for it may take it
    again.write_before("a: 2\n", ["results.folder=mine"], None, None)
    assert (tmp_path / "mine" / "overrides.yaml").read_text() == '- "a=1"\n', "what the user said"
    again.started()
    with pytest.raises(FileError, match="is there and not made ready for a run"):
        ResultsFolder.at(tmp_path / "mine")


def test_the_newest_finished_folder_of_a_config_is_found(tmp_path: Path) -> None:
    for name, state in (
        ("run/d_abcd1234", "done"),
        ("run/d_abcd1234_2", "failed"),
        ("multirun/s/001_abcd1234", "done"),
        ("run/d_abcd12345", "done"),
    ):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "status.json").write_text(f'{{"state": "{state}", "exit_code": 0, "error": null}}')
    os.utime(tmp_path / "run/d_abcd1234/status.json", (1, 1))
    assert done_folder(tmp_path, "abcd1234") == tmp_path / "multirun/s/001_abcd1234"
    assert done_folder(tmp_path, "00000000") is None


def test_a_jobs_hash_does_not_know_the_sweep() -> None:
    config = compose_config(["prefill.chunk=64"])
    swept = compose_config(["prefill.chunk=64", "sweep.resume=true", "sweep.metrics=[ready_s]", "results.root=/x", "results.folder=y"])
    assert config_hash(config) == config_hash(swept)


def test_one_job_a_card_at_a_time_unless_more_are_asked_for(tmp_path: Path) -> None:
    cards = ["GPU-a", "GPU-b"]
    with turn(cards, 1, tmp_path) as first, turn(cards, 1, tmp_path) as second:
        assert {first["CUDA_VISIBLE_DEVICES"], second["CUDA_VISIBLE_DEVICES"]} == set(cards)
        with ExitStack() as held:
            assert _take([(card, tmp_path / f"gpu-{card}-0.lock") for card in cards], held) is None, "both are taken"
        with turn(cards, 2, tmp_path) as third:
            assert third["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    with turn(cards, 1, tmp_path) as again:
        assert again == first
    with turn([], 1, tmp_path) as nothing:
        assert nothing == {}
