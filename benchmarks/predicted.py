"""Predicted over measured seconds of prompts and starts that wait for the drive, on this box.

    python -m benchmarks.predicted FOLDER [--out results/predicted]

Prompts are the arms of benchmarks.prefill, each in its control group that holds a third of the pack, starts a resident copy of the
whole pack; the drive is held to a stated rate, the file cold. Wanted: within 20 %. The prompts' compute is this machine's, estimated.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.prefill import ARMS, CHUNK, CHUNKS, ENVIRONMENT, GROUP_BYTES, HARDWARE, MODEL, PROMPT, make_cold
from strata_recipes.config.compose import compose_config
from strata_recipes.decide import Decided, decide
from strata_recipes.engine.session import Session
from strata_recipes.machine.limited import limited
from strata_recipes.machine.probe import resolve_hardware
from strata_recipes.modes.models import write_pack
from strata_recipes.pack.manifest import MANIFEST_FILE
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.units import gb_per_s, gib

TOKENS = CHUNK * CHUNKS
PROMPTS = ("chunked", "layer_major", "layer_major, through the cache", "layer_major, no prefetch")
ROOM = ("hardware.ram=12GiB", "hardware.available=10GiB", "experts=resident", "prefill=chunked", "compute.threads=1")
STARTS = ("mapped", "unbuffered")
ALLOWED = 0.2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--start", choices=STARTS)
    asked = parser.parse_args()
    if asked.start:
        print(json.dumps(run_start(asked.folder, asked.start)))
        return 0
    if not (asked.folder / MANIFEST_FILE).exists():
        write_pack(compose_config([*MODEL]).model, asked.folder)
    lines = measure(asked.folder)
    text = "\n".join(lines)
    print(text)
    if asked.out:
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "report.txt").write_text(text + "\n")
    return 0


def decided(pack: Pack, *words: str) -> Decided:
    config = compose_config([*MODEL, *HARDWARE, *PROMPT, f"workload.tokens={TOKENS}", *words])
    hardware, machine = resolve_hardware(config.hardware, pack.folder)
    return decide(dataclasses.replace(config, hardware=hardware), machine, pack.index, TOKENS, order=pack.order())


def run_start(folder: Path, strategy: str) -> dict[str, float]:
    with open_pack(folder) as pack:
        found = decided(pack, *ROOM, f"startup={strategy}")
        with Session(found.plan, pack, order=pack.order()) as session:
            figures = session.started.figures
    return {"seconds": figures.fill_s + figures.copy_s}


def child(*words: str, group: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", *words]
    if group:
        with limited(GROUP_BYTES) as held:
            done = subprocess.run(held.command(command), capture_output=True, text=True, env=ENVIRONMENT)
    else:
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(folder: Path) -> list[str]:
    with open_pack(folder) as pack:
        prompts = {arm: decided(pack, *ARMS[arm]) for arm in PROMPTS}
        starts = {arm: decided(pack, *ROOM, f"startup={arm}") for arm in STARTS}
        size, path = pack.index.experts_file_bytes, pack.experts_path
    rate = prompts["chunked"].plan.throttle
    assert rate is not None
    lines = [
        f"pack of {gib(size)} of experts; prompts of {TOKENS} tokens in a control group of {gib(GROUP_BYTES)}, starts with room for all",
        f"emulated: the drive, held to {gb_per_s(rate.direct)} direct and {gb_per_s(rate.faults)} by faults; wanted: within {ALLOWED:.0%}",
    ]
    for arm, found in prompts.items():
        make_cold(path)
        done = child("benchmarks.prefill", str(folder), "--arm", arm, group=True)
        read, moved = done["read_bytes"], found.timed.prompt.bytes.drive
        lines.append(line(f"prompt, {arm}", found.timed.prompt.seconds, done["seconds"]) + f"; bytes {gib(moved)} / {gib(read)}")
        print(lines[-1], file=sys.stderr, flush=True)
    make_cold(path)
    floor = child("benchmarks.prefill", str(folder), "--arm", "drive floor", group=True)["seconds"]
    lines.append(line("the held drive alone, every expert once", size / rate.direct, floor))
    print(lines[-1], file=sys.stderr, flush=True)
    for arm, found in starts.items():
        make_cold(path)
        done = child("benchmarks.predicted", str(folder), "--start", arm, group=False)
        lines.append(line(f"start, {arm}", found.timed.start.moved_s, done["seconds"]))
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def line(what: str, predicted: float, measured: float) -> str:
    ratio = predicted / measured
    verdict = "holds" if abs(ratio - 1) <= ALLOWED else "MISSED"
    return f"{verdict:6} {what:40} predicted {predicted:7.2f} s, measured {measured:7.2f} s, ratio {ratio:5.2f}"


if __name__ == "__main__":
    sys.exit(main())
