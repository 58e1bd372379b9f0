from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from rich.console import Console

from strata_recipes.plan.plan import PrefillPlan
from strata_recipes.results.figures import figures
from strata_recipes.results.metrics import DecodeMetrics, Metrics, PrefillMetrics
from strata_recipes.results.readme import readme
from strata_recipes.results.report import final_table
from strata_recipes.results.status import DONE, ended
from strata_recipes.units import GiB


def shown(plan, metrics) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(final_table(plan, metrics, "results/run/x [y]"))
    return console.export_text()


def test_the_figures_are_those_of_plan_and_metrics(plan, metrics):
    found = {(figure.part, figure.name): figure.value for figure in figures(plan, metrics)}
    assert found == {
        ("plan", "model"): "demo, compute f32 (GPU, the CPU stands in for it), kv fp32",
        ("plan", "hardware"): "rtx3060_6gb (linux)",
        ("plan", "experts"): "budget: 100 in VRAM slots, 200 in RAM, 84 in the file",
        ("plan", "VRAM"): "3.00 GiB of 6.00 GiB",
        ("plan", "RAM"): "0.50 GiB of 10.00 GiB",
        ("plan", "predicted"): "ready after 1.5 s, 300.0 tokens/s read, 30.0 tokens/s written",
        ("start-up", "strategy"): "mapped",
        ("start-up", "VRAM fill"): "0.29 GiB in 0.500 s",
        ("start-up", "RAM copy"): "2.00 GiB in 1.0 s",
        ("start-up", "ready after"): "2.2 s",
        ("prompt", "order"): "chunked, chunks of 512 tokens",
        ("prompt", "read"): "13 tokens in 0.125 s, 104.0 tokens/s",
        ("decode", "written"): "64 tokens in 2.0 s, 32.0 tokens/s",
        ("decode", "expert look-ups"): "50.0% VRAM, 30.0% RAM, 20.0% file",
    }


def test_a_layer_major_prompt_tells_its_passes_and_bytes(plan, metrics):
    read = PrefillMetrics("layer_major", 900, 1.0, 900.0, 3 * GiB, 2 * GiB, 4 * GiB, super_chunks=2)
    planned = replace(plan, prefill=PrefillPlan("layer_major", 64, 900, 512, "host"))
    found = {figure.name: figure.value for figure in figures(planned, replace(metrics, prefill=read))}
    assert found["order"] == "layer_major, chunks of 64 tokens, 2 passes of 512 tokens over the layers"
    assert found["experts from the file"] == "3.00 GiB (2.00 GiB touched, 4.00 GiB in one pass of all)"


def test_drafts_are_told_where_there_were_any(plan, metrics):
    def told(**counts: int) -> str | None:
        found = {figure.name: figure.value for figure in figures(plan, replace(metrics, decode=DecodeMetrics(tokens=9, **counts)))}
        return found.get("drafts")

    assert told(drafted=40, accepted=25) == "25 of 40 guessed tokens were right (62.5%)"
    assert told(drafted=0, accepted=0) is None and told() is None


def test_what_a_card_waited_for_and_could_not_do_is_told(plan, metrics):
    def told(runs_on: str, **counts: Any) -> dict[str, str]:
        on, made = replace(plan, compute=replace(plan.compute, runs_on=runs_on)), DecodeMetrics(tokens=9, **counts)
        return {figure.name: figure.value for figure in figures(on, replace(metrics, decode=made)) if figure.part == "decode"}

    assert told("cuda", wait_s=3.25, fallback="not locked") == {
        "written": "9 tokens", "waited after the first token": "3.2 s", "fell back to single visits": "not locked"
    }  # fmt: skip
    assert told("cpu", wait_s=3.25).keys() == told("cuda").keys() == {"written"}


def test_the_last_table_says_where_the_results_lie_and_what_is_emulated(plan, metrics):
    text = shown(plan, metrics)
    assert "results/run/x [y]" in text
    assert "Not this machine's own: gpu.vram; ram." in text and "VRAM by an arena in RAM" in text
    assert "Not this machine's own" not in shown(plan, Metrics())
    assert text.index("VRAM fill") < text.index("chunks of 512") < text.index("expert look-ups")


def test_the_page_for_a_person(plan, metrics):
    text = readme(plan, metrics, DONE, "run/2026")
    assert text.startswith("# demo on rtx3060_6gb\n\nState: done, exit code 0.\n")
    assert "13 tokens from `workload.text`; up to 64 new tokens, greedy." in text
    assert "| decode | written | 64 tokens in 2.0 s, 32.0 tokens/s |" in text
    assert "Times are this machine's, not the named PC's." in text
    parts = "extents, fallback, interpreter_s, device_s, dense_s, kernels_s, pinning_s"
    assert f"null in metrics.json): first_token_s, startup.{{purge_s, drive_bytes, cached_bytes, {parts}}}, memory.{{" in text
    assert text.endswith("    python run.py --config-dir FOLDER --config-name resolved\n")
    assert len(text.splitlines()) < 40


def test_a_run_that_measured_nothing_says_so(plan):
    text = readme(replace(plan, hardware="my|pc"), Metrics(), ended(130, "interrupted"), "run/x")
    assert "State: stopped, exit code 130. interrupted" in text and "my\\|pc (linux)" in text
    assert "| prompt |" not in text and "Nothing was measured." in text
    assert "told in machine.json; planned to be stood in for: VRAM by an arena in RAM." in text


def test_a_run_on_this_machine_alone_says_so(plan):
    assert "Nothing is emulated" in readme(plan, Metrics(ready_s=1.0), DONE, "run/x")
