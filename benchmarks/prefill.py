"""Layer-major against chunked order on a pack bigger than its RAM allowance, the drive held to a stated rate.

    python -m benchmarks.prefill FOLDER [--out results/prefill]

Each arm is a process of its own in a control group, its file dropped from the page cache first; arms are interleaved. Prints
chunked / layer-major seconds, and layer-major seconds over the larger of the drive floor and the compute alone, all of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from strata_recipes.config.compose import compose_config
from strata_recipes.decide import build_plan
from strata_recipes.engine.readers import Readers
from strata_recipes.engine.session import Session
from strata_recipes.files.residency import cached_bytes, drop_cached
from strata_recipes.machine.limited import limited
from strata_recipes.machine.probe import resolve_hardware
from strata_recipes.modes.models import write_pack
from strata_recipes.pack.manifest import MANIFEST_FILE
from strata_recipes.pack.reader import Pack, open_pack
from strata_recipes.plan.plan import Plan
from strata_recipes.units import MiB, gb_per_s, gib

CHUNK, CHUNKS, NEW = 16, 25, 24
GROUP_BYTES = 736 * MiB  # of which the interpreter, torch and the kernels take most: what is left is page cache and buffers
MODEL = (
    "model=synthetic",
    "model.geometry.num_layers=6",
    "model.geometry.hidden=512",
    "model.geometry.num_experts=128",
    "model.geometry.top_k=4",
    "model.geometry.expert_width=512",
    "model.experts=[{layers:6,gate:F32,up:F32,down:F32}]",  # many bytes, little arithmetic: a chunk waits for the drive
)
HARDWARE = (
    "hardware=cpu",
    "hardware.ram=736MiB",
    "hardware.available=500MiB",
    "hardware.headroom=0",
    "hardware.drive.direct=300MB/s",
    "hardware.drive.faults=150MB/s",
    "hardware.drive.cached=5GB/s",
    "hardware.cpu.cores=2",
    "emulate.links=throttle",
)
PROMPT = ("workload=synthetic", f"decode.max_new_tokens={NEW}", f"prefill.chunk={CHUNK}")
FILE = ("experts=mapped", "experts.file_io=buffered")
LAYER_MAJOR = ("prefill=layer_major", "prefill.super_chunk=whole")
ARMS: dict[str, tuple[str, ...]] = {
    "chunked": ("prefill=chunked", "prefill.direct=true", *FILE),
    "layer_major": (*LAYER_MAJOR, "prefill.direct=true", *FILE),
    "layer_major, through the cache": (*LAYER_MAJOR, "prefill.direct=false", *FILE),
    "layer_major, warm": (*LAYER_MAJOR, "prefill.direct=false", "prefill.warm=true", *FILE),
    "layer_major, no prefetch": (*LAYER_MAJOR, "prefill.direct=true", "prefill.prefetch=false", *FILE),
}
ROOMY = ("hardware.ram=12GiB", "hardware.available=10GiB", "emulate.links=none", "experts=resident")
ENVIRONMENT = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}  # as the command line sets it: torch's threads do not spin
COMPUTE = {"compute, layer_major": (*LAYER_MAJOR, *ROOMY), "compute, chunked": ("prefill=chunked", *ROOMY)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--arm")
    asked = parser.parse_args()
    if asked.arm:
        print(json.dumps(run_arm(asked.folder, asked.arm)))
        return 0
    if not (asked.folder / MANIFEST_FILE).exists():
        write_pack(compose_config([*MODEL]).model, asked.folder)
    found = measure(asked.folder)
    text = report(found, asked.folder)
    print(text)
    if asked.out:
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "report.txt").write_text(text + "\n")
        (asked.out / "arms.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


def planned(pack: Pack, words: tuple[str, ...], tokens: int = CHUNK * CHUNKS) -> Plan:
    config = compose_config([*MODEL, *HARDWARE, *PROMPT, f"workload.tokens={tokens}", *words])
    _, machine = resolve_hardware(config.hardware, pack.folder)
    return build_plan(config, machine, pack.index, tokens, order=pack.order())


def run_arm(folder: Path, arm: str) -> dict[str, Any]:
    """In a process of its own: one prompt and a reply. The first, short prompt compiles kernels and is not timed."""
    with open_pack(folder) as pack:
        if arm == "drive floor":
            return drive_floor(planned(pack, ARMS["layer_major"]), pack)
        plan = planned(pack, {**ARMS, **COMPUTE}[arm])
        ids = np.random.default_rng(7).integers(0, pack.index.geometry.vocab, CHUNK * CHUNKS)
        with Session(plan, pack, order=pack.order()) as session:
            session.prompt(ids[: CHUNK // 2])
        if arm not in COMPUTE:
            make_cold(pack.experts_path)  # which a mapping would prevent: the session is closed
        with Session(plan, pack, order=pack.order()) as session:
            read = session.prompt(ids).figures
            written = session.generate(max_new_tokens=NEW)
    return {
        "seconds": read.seconds,
        "mixer_s": read.mixer_s,
        "experts_s": read.experts_s,
        "super_chunks": read.super_chunks,
        "read_bytes": read.expert_bytes_read,
        "touched_bytes": read.expert_bytes_touched,
        "one_pass_bytes": read.expert_bytes_one_pass,
        "decode_tokens_per_s": written.figures.tokens_per_s,
        "tokens": list(written.tokens),
        "stage_bytes": plan.ram.part("stage buffers"),
    }


def make_cold(path: Path) -> None:
    """No page of the file in the page cache; those just written or just unmapped are let go only at a later try."""
    for _ in range(100):
        drop_cached(path)
        if not (held := cached_bytes(path)):
            return
        time.sleep(0.1)
    raise SystemExit(f"{path.name}: {held} bytes stay in the page cache: close what has it open")


def drive_floor(plan: Plan, pack: Pack) -> dict[str, Any]:
    """The whole file once, by the threads and sizes that the stager uses, nothing else going on."""
    at, g = pack.index.layers[0], pack.index.geometry
    file = Readers(plan, pack, print).direct()
    todo = iter([pack.index.offset(layer, expert) for layer in range(g.num_layers) for expert in range(g.num_experts)])
    lock, began = threading.Lock(), time.perf_counter()

    def work() -> None:
        out = np.empty(at.stride + 4096, np.uint8)
        place = out[-out.ctypes.data % 4096 :][: at.stride]
        while True:
            with lock:
                offset = next(todo, None)
            if offset is None:
                return
            file.read(offset, at.stride, place)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.close()
    return {"seconds": time.perf_counter() - began, "read_bytes": pack.index.experts_file_bytes}


def measure(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Chunked and layer-major in turn, twice; floor and compute between them; the other arms once."""
    order = ["chunked", "layer_major", "drive floor", *COMPUTE] * 2 + [arm for arm in ARMS if arm not in ("chunked", "layer_major")]
    found: dict[str, list[dict[str, Any]]] = {}
    for arm in order:
        make_cold(folder / "experts.bin")
        command = [sys.executable, "-m", "benchmarks.prefill", str(folder), "--arm", arm]
        with nullcontext() if arm in COMPUTE else limited(GROUP_BYTES) as group:
            done = subprocess.run(command if group is None else group.command(command), capture_output=True, text=True, env=ENVIRONMENT)
            peak = None if group is None else group.peak_bytes()
        if done.returncode:
            raise SystemExit(f"{arm} ended with {done.returncode}: {done.stderr.strip()}")
        figures = json.loads(done.stdout.splitlines()[-1])
        found.setdefault(arm, []).append({**figures, "group_peak_bytes": peak})
        print(f"{arm}: {figures['seconds']:.2f} s", file=sys.stderr, flush=True)
    return found


def report(found: dict[str, list[dict[str, Any]]], folder: Path) -> str:
    def seconds(arm: str) -> float:
        return statistics.median(one["seconds"] for one in found[arm])

    chunked, whole = found["chunked"][0], found["layer_major"][0]
    with open_pack(folder) as pack:
        size = pack.index.experts_file_bytes
        one = [planned(pack, (prefill, *FILE), CHUNK) for prefill in ("prefill=auto", "prefill=chunked")]
        same = one[0].prefill == one[1].prefill
        rate = planned(pack, ARMS["chunked"]).throttle
        assert rate is not None
    floor = seconds("drive floor") * whole["read_bytes"] / size
    limit = max(floor, seconds("compute, layer_major"))
    chunk_drive, chunk_compute = chunked["read_bytes"] / CHUNKS / rate.direct, seconds("compute, chunked") / CHUNKS
    tokens = {tuple(one["tokens"]) for arms in found.values() for one in arms if "tokens" in one}
    lines = [
        f"prompt of {CHUNK * CHUNKS} tokens in {CHUNKS} chunks; pack of {gib(size)} of experts in a control group of {gib(GROUP_BYTES)}, "
        f"{size / GROUP_BYTES:.1f} times that",
        f"emulated: the drive, held to {gb_per_s(rate.direct)} direct and {gb_per_s(rate.faults)} by faults; times are this machine's",
        f"a chunk: {chunk_drive:.2f} s of drive, {chunk_compute:.2f} s of compute, {chunk_drive / chunk_compute:.1f} to 1 (wanted: >= 5)",
        f"chunked       {seconds('chunked'):8.2f} s  {gib(chunked['read_bytes'])} read",
        f"layer_major   {seconds('layer_major'):8.2f} s  {gib(whole['read_bytes'])} read, one pass is {gib(whole['one_pass_bytes'])}",
        f"drive floor   {floor:8.2f} s  for those bytes;  compute alone {seconds('compute, layer_major'):.2f} s",
        f"chunked / layer_major                        {seconds('chunked') / seconds('layer_major'):6.2f}  (wanted: >= 4)",
        f"layer_major / max(drive floor, compute)      {seconds('layer_major') / limit:6.2f}  (wanted: <= 1.25)",
        f"a prompt of 1 chunk: auto's schedule is chunked's: {same}",
        f"every arm wrote the same {NEW} tokens: {len(tokens) == 1}",
        *(
            f"{arm}: prompt {seconds(arm):.2f} s, {gib(found[arm][0]['read_bytes'])} read; decode after it "
            f"{statistics.median(one['decode_tokens_per_s'] for one in found[arm]):.2f} tokens/s"
            for arm in ARMS
        ),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
