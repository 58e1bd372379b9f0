"""What the runner of compute-sanitizer calls clean: in the simulator, under stand-ins for the tool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import sanitized
from tests.gpu.sanitized import CLEAN, ROOT, Part, Told, kernel_files, line, parts, run


def stand_in(at: Path, says: str, code: str = '"$code"') -> str:
    """Takes the tool's options, runs the rest, then says so."""
    program = at / "tool"
    program.write_text(f'#!/bin/sh\nshift 4\n"$@"; code=$?\necho "========= {says}"\nexit {code}\n')
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def moe(monkeypatch: pytest.MonkeyPatch) -> Part:
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (found,) = parts(["test_moe.py"], ["memcheck"])
    return Part(found.tool, found.file, found.tests[:1])


def test_every_test_of_every_kernel_is_there_once_a_tool() -> None:
    files = kernel_files()
    assert {"test_dequantize.py", "test_grouped_matmul.py", "test_route_topk.py", "test_quantize_rows.py"} < set(files)
    asked = ["tests/gpu/test_dequantize.py", "tests/gpu/test_moe.py"]
    told = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", *asked], cwd=ROOT, capture_output=True, text=True)
    found = parts([Path(file).name for file in asked])
    for tool in CLEAN:
        tests = sorted(test for part in found if part.tool == tool for test in part.tests)
        assert tests == sorted(line for line in told.stdout.splitlines() if "::" in line) and len(tests) > 100
    assert all(0 < len(part.tests) <= sanitized.AT_ONCE and all(part.file in test for test in part.tests) for part in found)


def test_clean_is_what_ran_and_was_found_clean(moe: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = run(moe, stand_in(tmp_path, CLEAN["memcheck"]))
    assert (clean.passed, clean.fault) == (1, "")
    found = run(moe, stand_in(tmp_path, "ERROR SUMMARY: 2 errors", "9"))
    assert found.passed == 1 and found.fault.startswith("exit code 9, 1 of 1 passed")
    assert run(moe, stand_in(tmp_path, "ERROR SUMMARY: 10 errors")).fault  # whatever the exit code
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM")  # no card: all are skipped
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert run(moe, stand_in(tmp_path, CLEAN["memcheck"])).fault.startswith("exit code 0, 0 of 1 passed")


def test_a_line_adds_up_and_says_the_worst() -> None:
    assert line("memcheck", "test_moe.py", [Told(2, 1.0, ""), Told(3, 1.0, "")]).split()[2:] == ["5", "passed", "0", "errors"]
    assert line("racecheck", "test_moe.py", [Told(2, 1.0, ""), Told(3, 1.0, "exit code 9")]).endswith("not clean")


def test_a_file_without_tests_is_told() -> None:
    with pytest.raises(SystemExit, match=r"no test was found in .*test_nothing\.py"):
        parts(["test_moe.py", "test_nothing.py"])
