"""Writes docs/looking_ahead.md: a whole prompt in one layer-major pass on the layer-major report's laptop, simulated.

python -m benchmarks.looking_ahead > docs/looking_ahead.md
"""

from __future__ import annotations

from dataclasses import dataclass

from strata_recipes.modes.published import Arm, planned_arm, with_inputs
from strata_recipes.plan.budget import kept_parts
from strata_recipes.simulate.simulate import Simulator
from strata_recipes.units import figure, gib

CHUNK = 512
COMMON = (
    "hardware=rtx3060_6gb", "model=qwen38_flash_next_q2_0", "kv=q4_0", "experts=mapped", "experts.file_io=buffered",
    "prefill=layer_major", "prefill.direct=true",
)  # fmt: skip
LONG = ("hardware.gpu.vram=8GiB", "experts.slots=147")  # keys and values of these contexts do not fit 6 GiB beside Q8_0 dense weights
HEAD = """\
# Looking ahead: the whole prompt in one pass

Predictions of the simulator, not measurements. `python -m benchmarks.looking_ahead` writes this page.

The layer-major report read a prompt in super-chunks of up to 8,192 tokens, shrunk to the free VRAM of a 6 GB laptop. A super-chunk
as long as the prompt reads every expert that the prompt touches once, whatever its length; the residual streams lie in RAM between
the layers, and a layer's experts are read while its mixer runs, into buffers for the whole layer.

"""
COLUMNS = (
    "prompt, tokens", "published, super-chunks", "predicted, one pass", "predicted time", "experts from the drive",
    "residual streams in RAM", "waits for",
)  # fmt: skip
TAIL = """
What stands behind it: `hardware=rtx3060_6gb`, whose rate through page faults and prompt efficiency are set by two cells of that
report (`recipe=seed_1670_table` prints all cells, predicted beside published); slots filled by an expert profile; a router skew of
0.45. From 32K on the arms are planned with 8 GiB of VRAM and the slots of 6, as keys and values of that context do not fit beside
dense weights in Q8_0. One pass is bound by the card's arithmetic, not by the drive: at the efficiency of 0.55 that the report's
super-chunks set, 20 TFLOP/s read about 850 tokens/s. A card that reaches more of its rate gains until the drive binds.

For 223,706 tokens the residual streams and the rows that experts read and write do not fit this laptop: there one pass is a limit,
and the largest super-chunk that fits has {largest} tokens with {largest_gb} GB from the drive, at {largest_pace} tokens/s.
"""


@dataclass(frozen=True)
class Prompt:
    workload: str
    published: str


PROMPTS = (
    Prompt("prompt_7k4", "378 tokens/s"),
    Prompt("prompt_8k1", "406 tokens/s"),
    Prompt("prompt_12k9", "443 tokens/s"),
    Prompt("prompt_32k", "-"),
    Prompt("prompt_51k5", "415 tokens/s"),
    Prompt("prompt_224k", "416 to 449 tokens/s (498 to 538 s)"),
)


def page() -> str:
    rows, planned = [], (0, 0.0, 0.0)
    for prompt in PROMPTS:
        short = prompt.workload in ("prompt_7k4", "prompt_8k1", "prompt_12k9")
        machine, pack, load = planned_arm(Arm((*COMMON, f"workload={prompt.workload}", *(() if short else LONG)), {"tiers.ranked": True}))
        tokens = load.prompt.tokens
        whole = with_inputs(load, {"prompt.super_chunk": -(-tokens // CHUNK) * CHUNK, "prompt.streams_cross": True})
        simulator = Simulator(pack, machine)
        found, fits = simulator.predict(whole), simulator.predict(load)
        p, streams = found.prediction, kept_parts(pack.geometry, tokens)[0].num_bytes
        cells = [
            f"{tokens:,}", prompt.published, f"{figure(p.prefill_tokens_per_s)} tokens/s", f"{figure(p.prefill_s)} s",
            f"{found.prompt.bytes.drive / 1e9:.1f} GB", gib(streams), p.prefill_bound,
        ]  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
        planned = (load.prompt.super_chunk or 0, fits.prompt.bytes.drive / 1e9, fits.prediction.prefill_tokens_per_s)
    tail = TAIL.format(largest=f"{planned[0]:,}", largest_gb=f"{planned[1]:.0f}", largest_pace=figure(planned[2]))
    head = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    return HEAD + "\n".join([*head, *rows]) + "\n" + tail


if __name__ == "__main__":
    print(page(), end="")
