"""Every way to start, then a prompt of 8,192 tokens in a control group that cannot hold the pack: the same bytes, tokens and logits.

    python -m benchmarks.startup_paging [folder for the pack, on a drive]

Emulated: a PC with ALLOWANCE of RAM, by a control group; VRAM slots are an arena in RAM. The page cache is cold before each start.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.runs import Run, run
from strata_recipes.files.residency import drop_cached
from strata_recipes.machine.limited import limited
from strata_recipes.units import MiB, gib

ALLOWANCE = 1400 * MiB
ARMS = ("mapped", "unbuffered", "auto")
SAME = ("tokens_md5", "first_logits_md5", "slots_checksum", "ram_checksum")
# 3,072 blobs of 663,552 bytes: 1.9 GiB
SETTINGS = (
    "model=synthetic", "model.geometry.hidden=1024", "model.geometry.expert_width=768", "model.geometry.num_experts=256",
    "model.geometry.num_layers=12", "model.experts=[{layers:12,gate:Q2_0,up:Q2_0,down:Q2_0}]", "model.geometry.context_length=16384",
    "hardware=cpu", f"hardware.available={ALLOWANCE}", f"hardware.headroom={128 * MiB}", "experts=budget",
    f"experts.ram_budget={150 * MiB}", "experts.slots=130", "experts.file_io=buffered", "experts.verify=true", "workload=synthetic",
    "workload.tokens=8192", "decode.max_new_tokens=4", "decode.stop_at_eos=false", "prefill=chunked", "prefill.chunk=1024",
    "prefill.direct=false",  # through the page cache: a byte that comes from the drive again had been pushed out of it
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(dir=arguments[0] if arguments else None) as folder:
        pack, root = Path(folder) / "pack", Path(folder) / "results"
        found = {arm: start(pack, root, arm) for arm in ARMS}
        lines = [told(arm, one) for arm, one in found.items()]
        first = identity(found["mapped"])
        for arm in ARMS[1:]:
            other = identity(found[arm])
            lines += [f"{'holds' if first[key] == other[key] else 'MISSED'}: {key} of {arm} is {other[key]}, mapped's" for key in SAME]
        times = min((one["prefill.drive_bytes"] or 0) / one["prefill.expert_bytes_one_pass"] for one in found.values())
        lines.append(
            f"{'holds' if times > 2 else 'MISSED'}: the group forces paging, what was pushed out came {times:.1f} times from the drive"
        )
    print("\n".join(lines))
    return 0 if not any(line.startswith("MISSED") for line in lines) else 1


def start(pack: Path, root: Path, arm: str) -> Run:
    if (pack / "experts.bin").exists():
        drop_cached(pack / "experts.bin")
    else:
        run((*SETTINGS, f"model.pack={pack}", "workload.tokens=16"), root)  # makes the pack outside the group
        drop_cached(pack / "experts.bin")
    with limited(ALLOWANCE) as group:
        return run((*SETTINGS, f"model.pack={pack}", f"startup={arm}"), root, group)


def identity(found: Run) -> dict[str, str | None]:
    return dict(json.loads((found.folder / "identity.json").read_text(encoding="utf-8")))


def told(arm: str, found: Run) -> str:
    return (
        f"{arm}: started {found['startup.strategy']}, ready after {found['ready_s']:.2f} s, prompt {found['prefill.seconds']:.1f} s, "
        f"{found['memory.major_faults']:,} major faults, drive {gib(found['prefill.drive_bytes'] or 0)} in the prompt, "
        f"pack {gib(found['prefill.expert_bytes_one_pass'])} in the file tier, peak RSS {gib(found['memory.peak_rss_bytes'])}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
