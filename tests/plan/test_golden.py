"""Golden plans: every shipped declared PC with every shipped model that needs no file of the user's, byte for byte.

A change of them is reviewed as a diff; write them anew with `python -m tests.plan.test_golden`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plan.cases import planned

FOLDER = Path(__file__).parent / "golden"
HARDWARE = ("rtx3060_6gb", "rtx5090_32gb_windows", "rtx5090_128gb_windows", "rtx5070_12gb", "rtx4090_24gb_32gb", "h200")
MODELS = ("qwen38_flash_next_q2_0", "qwen38_flash_next_iq2_xs", "qwen38_true_synthetic", "synthetic", "demo")
PAIRS = [(hardware, model) for hardware in HARDWARE for model in MODELS]


def golden_text(hardware: str, model: str) -> str:
    """A plan for a prompt of 7,400 tokens; of the two small models for one that fits their context."""
    workload, tokens = {"demo": ("story", 30), "synthetic": ("prompt_2k", 2000)}.get(model, ("prompt_7k4", 7400))
    return planned(f"hardware={hardware} workload={workload}", model, tokens).to_json()


@pytest.mark.parametrize(("hardware", "model"), PAIRS)
def test_golden(hardware: str, model: str) -> None:
    assert golden_text(hardware, model) == (FOLDER / f"{hardware}__{model}.json").read_text(encoding="utf-8")


def test_no_golden_plan_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {f"{hardware}__{model}" for hardware, model in PAIRS}


def write_all() -> None:
    FOLDER.mkdir(exist_ok=True)
    for hardware, model in PAIRS:
        (FOLDER / f"{hardware}__{model}.json").write_text(golden_text(hardware, model), encoding="utf-8")


if __name__ == "__main__":
    write_all()
