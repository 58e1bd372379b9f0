"""Replies at the true geometry on a card: every expert in VRAM, all in page-locked RAM, a fifth in VRAM, and a file tier.

    python -m benchmarks.decode PACK RESULTS [part ..]

PACK: a folder for the 39 GB pack, made where it is missing. Parts: launches, vram, hot, ram, file, eight; all of them without one.
Emulated, for `file`: a PC of 27 GiB of RAM, by a control group; the page cache is cold before, and the prompt is read through
it: what it chose stays there for the reply, as what a load through a mapping brought would. Nothing is drafted. Rates are of the
tokens after the first, from metrics.json, with the capture of the graphs in them; `launches` profiles a few replayed tokens.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.profiled import on_the_card, session
from benchmarks.runs import Run, run
from strata_recipes.files.residency import drop_cached
from strata_recipes.units import gib

MODEL = (
    "model=qwen38_true_synthetic", "compute=bf16", "kv=fp16", "workload=synthetic", "workload.tokens=512", "decode.stop_at_eos=false",
    "hardware.headroom=1GiB",
)  # fmt: skip
TOKEN_BYTES = 48 * 10 * 1_382_400  # of experts that a token reads
FIFTH = 24_576 // 5
FILE = (
    "hardware.ram=27GiB", "hardware.available=26GiB", "emulate.ram=cgroup", "experts=mapped", "experts.slots=0", "prefill.direct=false",
    "decode.max_new_tokens=128",
)  # fmt: skip
LEARNED = "learned.npz"
PEER_FILE = 4.7  # tokens/s of llama.cpp there, in the same kind of group
PEER_VRAM = "llama.cpp there: 91 to 97"


def main(arguments: Sequence[str]) -> int:
    pack, root = Path(arguments[0]), Path(arguments[1])
    lines: list[str] = []
    for part in arguments[2:] or list(PARTS):
        for line in PARTS[part](pack, root):
            lines.append(line)
            print(line, flush=True)
    with (root / "report.txt").open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return 0 if not any(line.startswith("MISSED") for line in lines) else 1


def vram(pack: Path, root: Path) -> list[str]:
    """Every expert in a slot: one graph a token. What its tokens chose is kept for `hot`."""
    found = reply(pack, root, "experts.slots=24576", "decode.max_new_tokens=1000", f"experts.profile_save={root / LEARNED}")
    rate = found["decode.tokens_per_s"]
    return [told("all in VRAM", found), verdict(f"{rate:.1f} tokens/s, wanted >= 100 ({PEER_VRAM})", rate >= 100)]


def eight(pack: Path, root: Path) -> list[str]:
    """The same with 8-bit rows."""
    return [told("all in VRAM, 8-bit rows", reply(pack, root, "experts.slots=24576", "decode.max_new_tokens=1000", "compute=q8"))]


def ram(pack: Path, root: Path) -> list[str]:
    """No slot: each expert is read over the bus, where it lies."""
    found, dma = reply(pack, root, "experts=full_arena", "experts.slots=0", "decode.max_new_tokens=1000"), dma_rate()
    rate = found["decode.tokens_per_s"] * TOKEN_BYTES
    share = rate / dma
    return [
        told("all in page-locked RAM", found),
        verdict(f"{rate / 1e9:.1f} GB/s of experts, DMA moves {dma / 1e9:.1f}: {share:.3f}, wanted >= 0.60", share >= 0.60),
    ]


def hot(pack: Path, root: Path) -> list[str]:
    """The fifth that the profile kept by `vram` calls the hottest in VRAM, the others page-locked; another text."""
    profile = f"experts.profile={root / LEARNED}"
    found = reply(pack, root, "experts=resident", f"experts.slots={FIFTH}", profile, "decode.max_new_tokens=400", "workload.seed=7")
    hits, others = found["decode.vram_hits"], found["decode.ram_hits"] + found["decode.file_hits"]
    return [told(f"{FIFTH} slots", found), f"{hits / (hits + others):.3f} of a reply's look-ups find a slot"]


def file(pack: Path, root: Path) -> list[str]:
    """The rest in the file, buffered, direct and as planned."""
    found = {}
    for way in ("auto", "buffered", "direct"):
        if found and found["auto"].plan["experts"]["file_io"] == way:
            found[way] = found["auto"]
            continue
        drop_cached(pack / "experts.bin")
        found[way] = reply(pack, root, *FILE, f"experts.file_io={way}")
    planned = found["auto"].plan["experts"]["file_io"]
    rates = {way: round(found[way]["decode.tokens_per_s"], 2) for way in ("buffered", "direct")}
    better = max(rates, key=lambda way: rates[way])
    return [
        *(told(f"file tier, {way}", found[way]) for way in rates),
        verdict(f"the plan chose {planned}, {better} was faster: {rates}", planned == better),
        verdict(f"{rates[better]:.2f} tokens/s, llama.cpp {PEER_FILE}", rates[better] > PEER_FILE),
    ]


def launches(pack: Path, root: Path) -> list[str]:
    """Kernels a token, and the share of time in which none ran, in this process."""
    with session((*MODEL, f"model.pack={pack}", "experts.slots=24576", "decode.max_new_tokens=64")) as (opened, ids):
        opened.prompt(ids)
        opened.generate(max_new_tokens=8)
        opened.prompt(ids)
        token_s = opened.generate(max_new_tokens=65).figures.seconds / 64
        opened.prompt(ids)
        return on_the_card(lambda: opened.generate(max_new_tokens=17), "token", 16, token_s)


PARTS = {"launches": launches, "vram": vram, "hot": hot, "ram": ram, "file": file, "eight": eight}


def reply(pack: Path, root: Path, *overrides: str) -> Run:
    return run((*MODEL, f"model.pack={pack}", *overrides), root)


def dma_rate() -> float:
    """Bytes a second from page-locked RAM to the card, in copies of 256 MiB."""
    import torch

    here = torch.empty(256 << 20, dtype=torch.uint8, pin_memory=True)
    there = torch.empty_like(here, device="cuda")
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    there.copy_(here, non_blocking=True)
    begin.record()
    for _ in range(16):
        there.copy_(here, non_blocking=True)
    end.record()
    end.synchronize()
    return 16 * here.numel() / (begin.elapsed_time(end) / 1000)


def told(what: str, found: Run) -> str:
    decode = found["decode"]
    return (
        f"{what}: {decode['tokens']} tokens at {decode['tokens_per_s']:.2f} a second; look-ups {decode['vram_hits']:,} in VRAM, "
        f"{decode['ram_hits']:,} in RAM, {decode['file_hits']:,} in the file; prompt {found['prefill.seconds']:.2f} s, ready after "
        f"{found['ready_s']:.1f} s, peak VRAM {gib(found['memory.vram_peak_bytes'])}, tokens md5 {identity(found)}"
    )


def identity(found: Run) -> str:
    return str(json.loads((found.folder / "identity.json").read_text(encoding="utf-8"))["tokens_md5"])


def verdict(line: str, holds: bool) -> str:
    return f"{'holds' if holds else 'MISSED'}: {line}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
