"""Mapped against unbuffered start, interleaved, in a control group that holds a fraction of the pack. Prints ratios and their bounds.

    python -m benchmarks.startup [folder for the pack, on a drive]

Emulated: a PC with ALLOWANCE of RAM, by a control group; VRAM slots are an arena in RAM. The page cache is cold before each start.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from strata_recipes.config.compose import compose_config
from strata_recipes.engine.process import process_use
from strata_recipes.engine.session import Session
from strata_recipes.files.aligned import AlignedBuffer
from strata_recipes.files.residency import cached_bytes, drop_cached
from strata_recipes.files.unbuffered_linux import DirectFile
from strata_recipes.machine import memory
from strata_recipes.machine.limited import limited
from strata_recipes.modes.models import ready_pack
from strata_recipes.modes.prepare import prepare
from strata_recipes.plan.plan import Plan
from strata_recipes.results.samples import Sampler
from strata_recipes.units import MiB, gib

ALLOWANCE = 1280 * MiB
PAIRS = 3
READ_BYTES, THREADS = 32 * MiB, 6
ARMS = ("mapped", "unbuffered")
# blobs of the real model's size (1,382,400 B): 3,072 of them
OVERRIDES = (
    "model=synthetic", "model.geometry.hidden=2560", "model.geometry.expert_width=640", "model.geometry.num_experts=256",
    "model.geometry.num_layers=12", "model.experts=[{layers:12,gate:Q2_0,up:Q2_0,down:Q2_0}]", "hardware=cpu",
    f"hardware.available={ALLOWANCE}", f"hardware.headroom={256 * MiB}", "experts=budget", f"experts.ram_budget={400 * MiB}",
    "experts.slots=130", "experts.file_io=buffered", "startup.fill_batch=24", "workload=synthetic", "workload.tokens=64",
    "decode.max_new_tokens=1", "prefill.chunk=64",
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--start"]:
        print(json.dumps(one_start(*arguments[1:])))
        return 0
    with tempfile.TemporaryDirectory(dir=arguments[0] if arguments else None) as folder:
        pack = str(Path(folder) / "pack")
        with ready_pack(compose_config([*OVERRIDES, f"model.pack={pack}"]).model) as built:
            path, size = built.experts_path, built.index.experts_file_bytes
        print(f"pack: {gib(size)} of experts, {size / ALLOWANCE:.1f} times the allowance of {gib(ALLOWANCE)}; {PAIRS} interleaved pairs")
        found: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}
        for pair in range(PAIRS):
            for arm in ARMS if pair % 2 == 0 else ARMS[::-1]:
                drop_cached(path)
                found[arm].append(in_group(arm, pack) | {"raw_rate": raw_rate(path, size)})
                print(f"{pair + 1} {arm:10} " + ", ".join(f"{key} {value:,.6g}" for key, value in found[arm][-1].items()), flush=True)
    return report(found)


def in_group(arm: str, pack: str) -> dict[str, float]:
    with limited(ALLOWANCE) as group:
        command = group.command([sys.executable, "-m", "benchmarks.startup", "--start", arm, pack])
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def one_start(arm: str, pack: str) -> dict[str, float]:
    """In the group: one start and one prompt."""
    config = compose_config([*OVERRIDES, f"model.pack={pack}", f"startup={arm}"])
    with ready_pack(config.model) as opened:
        prepared = prepare(config, opened)
        assert prepared.prompt is not None and prepared.plan.startup.strategy == arm
        before = cached_bytes(opened.experts_path) or 0
        with Sampler(lambda: memory.available().num_bytes, period_s=0.05) as sampler, Session(prepared.plan, opened) as session:
            ready_s, peak = time.time() - psutil.Process().create_time(), peak_rss()
            grown = (cached_bytes(opened.experts_path) or 0) - before
            lowest = min(sample.available_bytes for sample in [*sampler.samples, sampler.take()])
            began = time.perf_counter()
            session.prompt(prepared.prompt.ids)
            prompt_s = time.perf_counter() - began
            figures, rss = session.started.figures, session.memory().rss_before_fill_bytes
            assert figures.fallback is None
    moved_s = figures.fill_s + figures.copy_s
    return {
        "ready_s": ready_s, "first_prompt_s": prompt_s, "fill_s": figures.fill_s, "copy_s": figures.copy_s,
        "moved_bytes": figures.fill_bytes + figures.copy_bytes, "rate": (figures.fill_bytes + figures.copy_bytes) / moved_s,
        "lowest_available_bytes": lowest, "peak_rss_bytes": peak, "rss_bound_bytes": rss + rss_allowed(prepared.plan),
        "cached_growth_bytes": grown, "major_faults": process_use().major_faults or 0,
    }  # fmt: skip


def rss_allowed(plan: Plan) -> int:
    """RAM copy, arena, planned stage buffers, 64 MiB."""
    return plan.experts.ram_bytes + plan.experts.vram_bytes + plan.startup.stage_bytes + 64 * MiB


def peak_rss() -> int:
    """The most that this process ever had, so that no sample can miss it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def raw_rate(path: Path, size: int) -> float:
    """Bytes a second of plain direct reads of the same file: THREADS at once, READ_BYTES each."""
    offsets = iter(range(0, min(size, 768 * MiB) // READ_BYTES * READ_BYTES, READ_BYTES))
    lock, total = threading.Lock(), [0]

    def work() -> None:
        file, buffer = DirectFile(path, size), AlignedBuffer(READ_BYTES, 4096)
        while True:
            with lock:
                offset = next(offsets, None)
            if offset is None:
                break
            file.read(offset, READ_BYTES, buffer.bytes)
            with lock:
                total[0] += READ_BYTES
        file.close()
        buffer.close()

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return total[0] / (time.perf_counter() - began)


def report(found: dict[str, list[dict[str, Any]]]) -> int:
    """The medians of both arms, and the three bounds; exit code 1 where one is missed."""
    for key in found["mapped"][0]:
        mapped, unbuffered = (statistics.median(run[key] for run in found[arm]) for arm in ARMS)
        print(f"median {key}: mapped {mapped:,.6g}, unbuffered {unbuffered:,.6g}, ratio {mapped / unbuffered if unbuffered else 0:.3f}")
    runs = found["unbuffered"]
    share = statistics.median(run["rate"] for run in runs) / statistics.median(run["raw_rate"] for arm in ARMS for run in found[arm])
    rss = max(run["peak_rss_bytes"] / run["rss_bound_bytes"] for run in runs)
    grown = max(run["cached_growth_bytes"] for run in runs)
    bounds = [
        (f"unbuffered bytes a second over raw direct reads of the same file: {share:.3f}, wanted >= 0.90", share >= 0.90),
        (f"peak RSS over its bound: {rss:.3f}, wanted <= 1.0", rss <= 1.0),
        (f"growth of experts.bin in the page cache by an unbuffered start: {grown / MiB:.1f} MiB, wanted < 64", grown < 64 * MiB),
    ]
    for line, holds in bounds:
        print(f"{'holds' if holds else 'MISSED'}: {line}")
    return 0 if all(holds for _, holds in bounds) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
