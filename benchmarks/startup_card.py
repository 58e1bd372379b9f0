"""Mapped against unbuffered start at the true geometry on a card, interleaved, in a control group with a locked ballast in it.

    python -m benchmarks.startup_card PACK RESULTS [pairs]

PACK: a folder for the 39 GB pack, made where it is missing. Emulated: 32 GiB of VRAM by the ledger and torch's own limit; a PC with
32 GiB of RAM of which others hold 11, by a control group of 32 GiB and a ballast of 11 GiB in it. The page cache is cold before each start.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.runs import Run, run
from benchmarks.startup import raw_rate
from strata_recipes.files.residency import drop_cached
from strata_recipes.machine.ballast import locked
from strata_recipes.machine.limited import limited
from strata_recipes.units import GiB, gib

ARMS = ("mapped", "unbuffered")
GROUP, BALLAST = 32 * GiB, 11 * GiB
SETTINGS = (
    "model=qwen38_true_synthetic", "compute=bf16", "kv=fp16", "workload=synthetic", "workload.tokens=512", "decode.max_new_tokens=4",
    "decode.stop_at_eos=false", "hardware.name=gpu_machine", "hardware.ram=32GiB", f"hardware.available={GROUP - BALLAST}",
    f"hardware.gpu.vram={32 * 1024 + 700}MiB", "hardware.gpu.reserve=700MiB", "experts=resident", "experts.verify=false",
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    pack, root, pairs = Path(arguments[0]), Path(arguments[1]), int(arguments[2]) if len(arguments) > 2 else 2
    path = pack / "experts.bin"
    found: dict[str, list[Run]] = {arm: [] for arm in ARMS}
    raw = []
    for pair in range(pairs):
        for arm in ARMS if pair % 2 == 0 else ARMS[::-1]:
            drop_cached(path)
            with limited(GROUP) as group, locked(BALLAST, group):
                found[arm].append(run((*SETTINGS, f"model.pack={pack}", f"startup={arm}"), root, group))
            drop_cached(path)
            raw.append(raw_rate(path, path.stat().st_size))
            print(told(arm, found[arm][-1]), f"raw direct {raw[-1] / 1e9:.2f} GB/s", flush=True)
    lines = report(found, statistics.median(raw))
    (root / "report.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 0 if not any(line.startswith("MISSED") for line in lines) else 1


def told(arm: str, found: Run) -> str:
    start, names = found["startup"], ("interpreter_s", "device_s", "dense_s", "fill_s", "copy_s", "pinning_s", "kernels_s")
    parts = ", ".join(f"{name.removesuffix('_s')} {start[name]:.2f}" for name in names)
    lowest = gib(found["memory.lowest_available_bytes"])
    return (
        f"{arm}: ready {found['ready_s']:.2f} s ({parts}); fill {gib(start['fill_bytes'])}, copy {gib(start['copy_bytes'])}, lowest "
        f"available {lowest}; first prompt {found['prefill.seconds']:.2f} s, fallback {start['fallback']}"
    )


def report(found: dict[str, list[Run]], raw: float) -> list[str]:
    """Each run, the medians, and the two bounds."""
    lines = [told(arm, one) for arm in ARMS for one in found[arm]]
    for key in ("ready_s", "startup.fill_s", "startup.copy_s", "prefill.seconds", "memory.lowest_available_bytes", "memory.peak_rss_bytes"):
        mapped, unbuffered = (statistics.median(one[key] for one in found[arm]) for arm in ARMS)
        lines.append(f"median {key}: mapped {mapped:,.6g}, unbuffered {unbuffered:,.6g}, ratio {mapped / unbuffered:.3f}")
    runs = found["unbuffered"]
    moved = statistics.median((one["startup.fill_s"] + one["startup.copy_s"]) for one in runs)
    num_bytes = runs[0]["startup.fill_bytes"] + runs[0]["startup.copy_bytes"]
    over = moved / (num_bytes / raw)
    lines.append(
        verdict(f"(fill + copy) over expert bytes / raw drive rate of {raw / 1e9:.3f} GB/s: {over:.3f}, wanted <= 1.10", over <= 1.10)
    )
    for one in runs:
        lowest, first = one["memory.lowest_available_bytes"], first_available(one.folder)
        bound = first - one["startup.copy_bytes"] - GiB
        lines.append(verdict(f"lowest available {gib(lowest)}, wanted >= {gib(bound)} ({gib(first)} at the start)", lowest >= bound))
    return lines


def first_available(folder: Path) -> int:
    with (folder / "samples.csv").open(encoding="utf-8") as file:
        return int(next(csv.DictReader(file))["available_bytes"])


def verdict(line: str, holds: bool) -> str:
    return f"{'holds' if holds else 'MISSED'}: {line}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
