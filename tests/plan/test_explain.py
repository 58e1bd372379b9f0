"""What a person sees: fits 100 columns, speaks GiB, and marks a prediction as one."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from strata_recipes.explain import plan_table
from tests.plan.cases import SEED, composed, planned


def shown(overrides: str, model: str) -> str:
    _, machine = composed(f"model={model} {overrides}")
    out = io.StringIO()
    Console(file=out, width=100).print(plan_table(planned(overrides, model), machine))
    return out.getvalue()


CASES = [(SEED, "qwen38_flash_next_iq2_xs"), ("hardware=rtx3060_6gb", "demo"), ("hardware=h200", "demo")]


@pytest.mark.parametrize(("overrides", "model"), CASES)
def test_it_fits_100_columns_and_says_what_counts(overrides: str, model: str) -> None:
    text = shown(overrides, model)
    assert max(len(line) for line in text.splitlines()) <= 100
    for part in ("Budgets", "Where the experts live", "Decisions", "Predicted, not measured", "Notes", "emulated here"):
        assert part in text


def test_the_figures_are_the_plans() -> None:
    text, plan = shown(SEED, "qwen38_flash_next_iq2_xs"), planned(SEED, "qwen38_flash_next_iq2_xs")
    assert f"{plan.vram_slots:,}" in text and f"{plan.ram_blobs:,}" in text
    assert "3.09 GiB" in text  # keys and values of 262,144 tokens in int8
    assert "29.44 GiB" in text  # 30.91 GiB free less 1,500 MiB


def test_text_of_a_user_is_not_markup() -> None:
    _, machine = composed("model=qwen38_flash_next_q2_0 hardware=h200")
    plan = planned("hardware=h200")
    console = Console(file=io.StringIO(), width=100, record=True)
    strange = dataclasses.replace(plan, notes=("[bold]x[/nonsense]",), hardware="[red]")
    console.print(plan_table(strange, machine))
    assert "[bold]x[/nonsense]" in console.export_text()
