"""Prompts at the true geometry on a card: layer-major against chunked order with 6 GiB of VRAM, and everything in VRAM.

    python -m benchmarks.prefill_card PACK RESULTS [part ..]

PACK: a folder for the 39 GB pack, made where it is missing. Parts: laptop, long, cold, whole, longest, launches; all of them without one.
Emulated, where a part says 6 GiB: a card of that budget by the ledger and torch's own limit, RAM of 27 GiB by a control group. The drive
is this machine's. The page cache is cold before each of those runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.profiled import on_the_card, on_the_host, session
from benchmarks.runs import Run, run
from strata_recipes.files.residency import drop_cached
from strata_recipes.units import gb_per_s, gib

MODEL = ("model=qwen38_true_synthetic", "compute=bf16", "kv=fp16", "workload=synthetic", "decode.stop_at_eos=false")
# 6 GiB of budget and the 700 MiB that the driver gets; 27 GiB of RAM; the drive's own rates, as they are what the run will meet
LAPTOP = (
    "hardware=rtx3060_6gb", f"hardware.gpu.vram={6 * 1024 + 700}MiB", "hardware.gpu.reserve=700MiB", "hardware.ram=27GiB",
    "hardware.available=27GiB", "hardware.drive.direct=1.7GB/s", "hardware.drive.faults=1.5GB/s", "emulate.ram=cgroup",
    "experts=mapped", "experts.file_io=buffered", "decode.max_new_tokens=8",
)  # fmt: skip
WHOLE = ("decode.max_new_tokens=8", "experts.slots=24576")
ONE_PASS = 24_576 * 1_384_448  # bytes of all blobs at their stride


def main(arguments: Sequence[str]) -> int:
    pack, root = Path(arguments[0]), Path(arguments[1])
    lines: list[str] = []
    for part in arguments[2:] or list(PARTS):
        for line in PARTS[part](pack, root):
            lines.append(line)
            print(line, flush=True)
    (root / "report.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if not any(line.startswith("MISSED") for line in lines) else 1


def laptop(pack: Path, root: Path) -> list[str]:
    """12.9K tokens in 6 GiB: one pass of the file; chunked order on its first 4 chunks."""
    chunked = cold_run(pack, root, *LAPTOP, "prefill=chunked", "workload.tokens=2048")
    whole = cold_run(pack, root, *LAPTOP, "prefill=layer_major", "workload.tokens=12900")
    ratio = whole["prefill.tokens_per_s"] / chunked["prefill.tokens_per_s"]
    read = whole["prefill.expert_bytes_read"]
    return [
        told("chunked, the first 4 chunks", chunked),
        told("layer-major", whole),
        verdict(f"layer-major reads {read:,} bytes of experts, one pass is {ONE_PASS:,}", read <= ONE_PASS),
        verdict(f"layer-major over chunked: {ratio:.2f}, wanted >= 5", ratio >= 5),
        verdict(f"peak VRAM {gib(whole['memory.vram_peak_bytes'])} of {gib(whole['memory.vram_budget_bytes'])}",
                whole["memory.vram_peak_bytes"] <= whole["memory.vram_budget_bytes"]),
    ]  # fmt: skip


def long(pack: Path, root: Path) -> list[str]:
    """51.5K tokens in 6 GiB."""
    found = cold_run(pack, root, *LAPTOP, "prefill=layer_major", "workload.tokens=51500")
    because = {one["name"]: one["because"] for one in found.plan["decisions"]}
    asked, read = found.plan["prefill"], found["prefill.expert_bytes_read"]
    return [
        told("layer-major", found),
        f"super-chunk {asked['super_chunk']:,}: {because['prefill.super_chunk']}",
        f"dense weights {asked['dense']}: {because['prefill.dense']}",
        verdict(f"layer-major reads {read:,} bytes of experts, one pass is {ONE_PASS:,}", read <= ONE_PASS),
    ]


def cold(pack: Path, root: Path) -> list[str]:
    """Start and a cold prompt of 4,096 tokens with the whole card and 27 GiB of RAM; llama.cpp: about 33 s for load and prompt."""
    card = ("hardware=auto", "hardware.ram=27GiB", "hardware.available=26GiB", "emulate.ram=cgroup", "decode.max_new_tokens=8")
    found = cold_run(pack, root, *card, "prefill=auto", "workload.tokens=4096")
    return [
        told("the whole card, cold", found),
        f"first token after {found['first_token_s']:.1f} s, llama.cpp's load and prompt about 33 s",
    ]


def whole(pack: Path, root: Path) -> list[str]:
    """4,096 tokens, every expert in VRAM."""
    runs = [one_run(pack, root, *WHOLE, f"prefill.chunk={chunk}", "workload.tokens=4096") for chunk in (512, 4096)]
    rate = runs[1]["prefill.tokens_per_s"]
    return [
        *(told(f"all in VRAM, chunks of {chunk}", found) for chunk, found in zip((512, 4096), runs, strict=True)),
        verdict(f"{rate:,.0f} tokens/s, wanted >= 2,000", rate >= 2000),
    ]


def longest(pack: Path, root: Path) -> list[str]:
    """223,706 tokens, every expert in VRAM."""
    found = one_run(pack, root, *WHOLE, "prefill.chunk=2048", "workload.tokens=223706")
    return [told("223,706 tokens, all in VRAM", found)]


def launches(pack: Path, root: Path) -> list[str]:
    """What a layer takes for one default chunk of 512, every expert in VRAM: on the card and of the host."""
    with session((*MODEL, f"model.pack={pack}", *WHOLE, "prefill.chunk=512", "workload.tokens=2048")) as (opened, ids):
        opened.prompt(ids)
        visits = opened.pack.index.geometry.num_layers * 4  # chunks
        seconds = opened.prompt(ids).figures.seconds / visits
        card = on_the_card(lambda: opened.prompt(ids), "layer and chunk", visits, seconds)
        return [*card, *on_the_host(lambda: opened.prompt(ids), "layer and chunk", visits)]


PARTS = {"laptop": laptop, "long": long, "cold": cold, "whole": whole, "longest": longest, "launches": launches}


def one_run(pack: Path, root: Path, *overrides: str) -> Run:
    return run((*MODEL, f"model.pack={pack}", *overrides), root)


def cold_run(pack: Path, root: Path, *overrides: str) -> Run:
    if (pack / "experts.bin").exists():
        drop_cached(pack / "experts.bin")
    return one_run(pack, root, *overrides)


def told(what: str, found: Run) -> str:
    prefill = found["prefill"]
    drive, seconds, experts = prefill["drive_bytes"] or 0, prefill["seconds"], prefill["expert_bytes_read"]
    return ", ".join(
        (
            f"{what}: {prefill['tokens']:,} tokens in {seconds:.2f} s",
            f"{prefill['tokens_per_s']:,.1f} tokens/s",
            f"{prefill['super_chunks']} passes",
            f"experts read {gib(experts)} (touched {gib(prefill['expert_bytes_touched'])})",
            f"drive {gib(drive)} at {gb_per_s(drive / seconds)}",
            f"ready after {found['ready_s']:.1f} s",
            f"first token after {found['first_token_s']:.1f} s",
            f"peak VRAM {gib(found['memory.vram_peak_bytes'])}",
            f"decode {found['decode.tokens_per_s'] or 0:.2f} tokens/s",
        )
    )


def verdict(line: str, holds: bool) -> str:
    return f"{'holds' if holds else 'MISSED'}: {line}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
