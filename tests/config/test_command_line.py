"""The command line as a whole: runs, sweeps, flags, exit codes, last lines, and that Hydra leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from strata_recipes import __version__
from strata_recipes.config.compose import hydra_main, resolved_yaml
from strata_recipes.config.schema import Config, Workload
from strata_recipes.errors import PackError

ROOT = Path(__file__).parents[2]


class Jobs:
    """A job that notes what it was called with; it ends with the code that `codes` has for its chunk."""

    def __init__(self, **codes: int) -> None:
        self.configs: list[Config] = []
        self.overrides: list[list[str]] = []
        self.codes = codes

    def __call__(self, config: Config, overrides: list[str]) -> int:
        self.configs.append(config)
        self.overrides.append(overrides)
        return self.codes.get(f"chunk_{config.prefill.chunk}", 0)

    @property
    def chunks(self) -> list[int | str]:
        return [config.prefill.chunk for config in self.configs]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def last_line(text: str) -> str:
    return text.rstrip("\n").rpartition("\n")[2]


def test_a_single_run_leaves_nothing_behind(in_an_empty_folder: Path) -> None:
    job, before = Jobs(), (sys.argv, dict(os.environ))
    assert hydra_main(job, ["prefill.chunk=6_4", "kv=fp16"]) == 0
    assert job.chunks == [64] and job.overrides == [["prefill.chunk=6_4", "kv=fp16"]]
    assert list(in_an_empty_folder.iterdir()) == []
    assert (sys.argv, dict(os.environ)) == before


def test_the_jobs_exit_code_is_ours() -> None:
    assert hydra_main(Jobs(chunk_5=3), ["prefill.chunk=5"]) == 3


def test_a_sweep_runs_all_jobs_and_keeps_the_first_fault(in_an_empty_folder: Path) -> None:
    job = Jobs(chunk_2=4, chunk_3=3)
    assert hydra_main(job, ["-m", "prefill.chunk=1,2,3", "kv=fp16,fp32", "hardware.ram=6GiB,8e9"]) == 4
    assert job.chunks == [1] * 4 + [2] * 4 + [3] * 4
    assert [c.kv.format.name for c in job.configs[:4]] == ["fp16", "fp16", "fp32", "fp32"]
    assert [c.hardware.ram for c in job.configs[:2]] == [6 << 30, 8_000_000_000]
    assert [path.name for path in in_an_empty_folder.iterdir()] == ["results"]
    assert [path.name for path in in_an_empty_folder.rglob("*") if path.is_file()] == ["multirun.yaml"]


def test_a_recipe_may_sweep_by_itself(tmp_path: Path) -> None:
    (tmp_path / "recipe").mkdir()
    text = "# @package _global_\nhydra: {mode: MULTIRUN, sweeper: {params: {prefill.chunk: '64,128'}}}\nresults: {root: ../out}\n"
    (tmp_path / "recipe" / "pair.yaml").write_text(text)
    job = Jobs()
    assert hydra_main(job, ["--config-dir", str(tmp_path), "recipe=pair"]) == 0
    assert job.chunks == [64, 128]
    assert len(list((tmp_path / "out" / "multirun").glob("*/multirun.yaml"))) == 1


def test_a_fault_in_a_sweep_stops_it_before_the_first_job(capsys: pytest.CaptureFixture[str]) -> None:
    job = Jobs()
    assert hydra_main(job, ["-m", "prefill.chunk=64,-1", "kv=fp16,fp17", "decode.sed=1"]) == 2
    assert job.chunks == []
    assert [fault.split(":")[0] for fault in last_line(capsys.readouterr().err).split("; ")] == [
        "strata",
        "kv=fp17",
        "decode.sed",
    ]


def test_an_error_of_one_job_lets_the_others_run(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[object] = []

    def job(config: Config, overrides: list[str]) -> int:
        seen.append(config.prefill.chunk)
        if config.prefill.chunk == 1:
            raise PackError("experts.bin is\nshort")
        return 0

    assert hydra_main(job, ["-m", "prefill.chunk=1,2"]) == 3
    assert seen == [1, 2] and "strata: experts.bin is short\n" in capsys.readouterr().err


def test_contradicting_settings_of_one_job_refuse_that_job() -> None:
    job = Jobs()
    assert hydra_main(job, ["-m", "decode=greedy,sample", "decode.temperature=0.5"]) == 2
    assert [config.decode.sampler.name for config in job.configs] == ["sample"]


def test_a_bug_keeps_its_traceback() -> None:
    def job(config: Config, overrides: list[str]) -> int:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        hydra_main(job, [])


def test_an_interrupt_ends_a_sweep() -> None:
    job = Jobs(chunk_2=130)
    assert hydra_main(job, ["-m", "prefill.chunk=1,2,3"]) == 130
    assert job.chunks == [1, 2]


def test_flags_and_overrides_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "resolved.yaml").write_text(resolved_yaml(Config(workload=Workload(text="${x} 'é'"))), encoding="utf-8")
    job = Jobs()
    line = ["prefill.chunk=1,2", "--config-dir", str(tmp_path), "-m", "kv.format=fp16", "--config-name", "resolved"]
    assert hydra_main(job, line) == 0
    assert job.chunks == [1, 2] and {config.kv.format.name for config in job.configs} == {"fp16"}


FLAGS = [
    (["--cfg", "job", "--multirun"], "exclude each other"),
    (["--resolve"], "apply to --cfg only"),
    (["--config-path", "x"], "use --config-dir"),
    (["--experimental-rerun", "x"], "use --config-dir FOLDER --config-name resolved"),
    (["--config-dir", "nope"], "there is no such folder"),
    (["--config-name", "nope"], "no folder of the search path holds nope.yaml"),
    (["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
    (["hydra/job_logging=zzz"], "hydra/job_logging=zzz: there is no such option, known are"),
    (["hydra.mode=FOO"], "hydra.mode: "),
    (["prefill.chunk=1,2"], "add -m"),
    (["-m", "prefill.chunk=interval(1,2)"], "does not support sweep type"),
]


@pytest.mark.parametrize(("flags", "told"), FLAGS)
def test_a_wrong_flag_gets_one_last_line(flags: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = Jobs()
    assert hydra_main(job, flags) == 2
    err = capsys.readouterr().err
    assert job.chunks == [] and told in last_line(err)
    assert "HYDRA_FULL_ERROR" not in err and "Traceback" not in err


def test_looking_without_running(capsys: pytest.CaptureFixture[str]) -> None:
    job = Jobs()
    assert hydra_main(job, ["--help"]) == 0
    assert "kv: fp16, fp32, int8, q4_0\n" in capsys.readouterr().out
    assert hydra_main(job, ["--cfg", "job", "--package", "kv", "kv=fp16"]) == 0
    assert capsys.readouterr().out == "# @package kv\nformat: fp16\nmax_context: auto\nresident_tokens: auto\n"
    assert hydra_main(job, ["--info", "defaults"]) == 0
    assert "config_schema" in capsys.readouterr().out
    assert hydra_main(job, ["--version"]) == 0
    assert capsys.readouterr().out == f"strata-recipes {__version__}\n"
    assert job.chunks == []


def test_the_shell_completes_groups_and_keys(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    job = Jobs()
    assert hydra_main(job, ["--shell-completion", "install=bash"]) == 0
    assert "complete -o nospace" in capsys.readouterr().out
    for typed, completed in (("strata prefill.ord", "prefill.order="), ("strata hardware=rtx3", "hardware=rtx3060_6gb")):
        monkeypatch.setenv("COMP_LINE", typed)
        assert hydra_main(job, ["--shell-completion", "query=bash"]) == 0
        assert capsys.readouterr().out.strip() == completed
    assert job.chunks == []


def run_py(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "run.py"), *arguments]
    return subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, encoding="utf-8", timeout=300)


def test_run_py_refuses_with_exit_code_2_and_one_last_line(in_an_empty_folder: Path) -> None:
    ended = run_py("prefil.chunk=3", "decode.max_new_tokens=-3", cwd=in_an_empty_folder)
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr == (
        "strata: prefil.chunk: there is no such key, nearest is prefill; "
        "decode.max_new_tokens: -3 is negative, wanted is a whole number such as 6_000\n"
    )
    assert list(in_an_empty_folder.iterdir()) == []


def test_run_py_helps(in_an_empty_folder: Path) -> None:
    ended = run_py("--help", cwd=in_an_empty_folder)
    assert ended.returncode == 0 and "desktop_32gb_resident" in ended.stdout


def test_arguments_are_utf8_under_a_narrow_locale(in_an_empty_folder: Path) -> None:
    narrow = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "utf-8"}
    ended = run_py("--cfg", "job", "-p", "model.note", "model.note='données 模型'", cwd=in_an_empty_folder, **narrow)
    assert (ended.returncode, ended.stdout.strip()) == (0, "données 模型")


def test_ctrl_c_ends_with_130(in_an_empty_folder: Path) -> None:
    script = (
        "import sys, time\nfrom strata_recipes.config.compose import hydra_main\n"
        "def job(config, overrides):\n    print('started', flush=True)\n"
        "    for _ in range(1200):\n        time.sleep(0.05)  # a signal just before one long sleep would not end it\n    return 0\n"
        "sys.exit(hydra_main(job))\n"
    )
    (in_an_empty_folder / "wait.py").write_text(script)
    process = subprocess.Popen(
        [sys.executable, "wait.py"], env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (130, "strata: interrupted\n")
