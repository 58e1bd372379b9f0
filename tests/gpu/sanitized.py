"""Every kernel test under compute-sanitizer's memcheck and racecheck, several processes at once.

    python -m tests.gpu.sanitized LOG [test_file.py ..]

Compiled kernels are kept on disk: run `pytest tests/gpu` before, since a tool slows compiling down. LOG gets a line for each tool and file,
after the versions. The exit code is 1 where a tool found something, or a test failed or did not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLEAN = {"memcheck": "ERROR SUMMARY: 0 errors", "racecheck": "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"}
NOT_OF_KERNELS = ("test_model.py", "test_reply.py", "test_exchange.py", "test_cubins.py", "test_simulated_blocks.py")
AT_ONCE = 24  # tests of a process: few enough that no long file ends alone
FOUND = 9  # the exit code where a tool found something


@dataclass(frozen=True)
class Part:
    """Some tests of a file, for one tool."""

    tool: str
    file: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Told:
    """What became of it. `fault`: none where every test passed and the tool found nothing."""

    passed: int
    seconds: float
    fault: str


def kernel_files() -> list[str]:
    """Those of tests/gpu whose tests launch kernels one by one, without sessions around them."""
    return sorted(path.name for path in Path(__file__).parent.glob("test_*.py") if path.name not in NOT_OF_KERNELS)


def parts(files: Sequence[str], tools: Sequence[str] = tuple(CLEAN)) -> list[Part]:
    """All their tests for each tool. Neighbours, which are alike, go to different parts."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *(f"tests/gpu/{file}" for file in files)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found: dict[str, list[str]] = {file: [] for file in files}
    for line in told.stdout.splitlines():
        if "::" in line:
            found[Path(line.split("::")[0]).name].append(line)
    if empty := [file for file, tests in found.items() if not tests]:
        raise SystemExit(f"no test was found in {', '.join(empty)}:\n{told.stdout[-3000:]}{told.stderr[-3000:]}")
    made = []
    for tool in tools:
        for file, tests in found.items():
            count = -(-len(tests) // AT_ONCE)
            made += [Part(tool, file, tuple(tests[at::count])) for at in range(count)]
    return made


def run(part: Part, sanitizer: str = "compute-sanitizer") -> Told:
    """One process under the tool."""
    began = time.perf_counter()
    command = [sanitizer, "--tool", part.tool, "--error-exitcode", str(FOUND), sys.executable, "-m", "pytest", "-x", "-q"]
    done = subprocess.run([*command, "-p", "no:cacheprovider", *part.tests], cwd=ROOT, capture_output=True, text=True)
    said = done.stdout + done.stderr
    passed = sum(map(int, re.findall(r"(\d+) passed", said)))
    clean = done.returncode == 0 and CLEAN[part.tool] in said and passed == len(part.tests)
    fault = "" if clean else f"exit code {done.returncode}, {passed} of {len(part.tests)} passed\n{said[-3000:]}"
    return Told(passed, time.perf_counter() - began, fault)


def main(arguments: Sequence[str]) -> int:
    log, files = Path(arguments[0]), arguments[1:] or kernel_files()
    told: dict[tuple[str, str], list[Told]] = {}
    head, todo = versions(), parts(files)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        under_way = {pool.submit(run, part): part for part in todo}
        for number, future in enumerate(as_completed(under_way), 1):
            part, one = under_way[future], future.result()
            told.setdefault((part.tool, part.file), []).append(one)
            print(f"{number} of {len(todo)}: {part.tool} {part.file} {one.passed} passed, {one.seconds:.0f} s {one.fault}", flush=True)
    log.write_text("\n".join([*head, *(line(*key, told[key]) for key in sorted(told))]) + "\n", encoding="utf-8")
    return 1 if any(one.fault for several in told.values() for one in several) else 0


def line(tool: str, file: str, several: Sequence[Told]) -> str:
    """Of the log."""
    result = "not clean" if any(one.fault for one in several) else CLEAN[tool].split("SUMMARY: ")[1]
    return f"{tool:<10} {file:<26} {sum(one.passed for one in several):>4} passed   {result}"


def versions() -> list[str]:
    """Of what the tests ran on and with."""
    from kernels_numba.device import check_device

    tool = subprocess.run(["compute-sanitizer", "--version"], capture_output=True, text=True, check=True).stdout.strip().splitlines()[-1]
    return [f"{check_device()}, numba-cuda {version('numba-cuda')}, numpy {version('numpy')}; compute-sanitizer: {tool}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
