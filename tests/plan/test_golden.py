"""Golden plans: every shipped declared PC with every shipped model that needs no file of the user's, byte for byte.

A change of them is reviewed as a diff; write them anew with `python -m tests.plan.test_golden`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from strata_recipes.plan.plan import plan_dict
from tests.plan.cases import planned

FOLDER = Path(__file__).parent / "golden"
HARDWARE = ("rtx3060_6gb", "rtx5090_32gb_windows", "rtx5090_128gb_windows", "rtx5070_12gb", "rtx4090_24gb_32gb", "h200")
MODELS = ("qwen38_flash_next_q2_0", "qwen38_flash_next_iq2_xs", "qwen38_true_synthetic", "synthetic", "demo")
# one start-up for each strategy of startup=auto: a drive of SATA's class with the whole file cached, and a small PC with NVMe
STARTS = {
    "sata_cached": "hardware=rtx5070_12gb hardware.drive.direct=0.5GB/s hardware.drive.faults=0.4GB/s hardware.drive.cached_share=1",
    "nvme_small": "hardware=rtx3060_6gb experts=budget experts.ram_budget=10GiB",
}
PAIRS = [(hardware, model) for hardware in HARDWARE for model in MODELS]


def golden_text(hardware: str, model: str) -> str:
    """A plan for a prompt of 7,400 tokens; of the two small models for one that fits their context."""
    workload, tokens = {"demo": ("story", 30), "synthetic": ("prompt_2k", 2000)}.get(model, ("prompt_7k4", 7400))
    return planned(f"hardware={hardware} workload={workload}", model, tokens).to_json()


@pytest.mark.parametrize(("hardware", "model"), PAIRS)
def test_golden(hardware: str, model: str) -> None:
    assert golden_text(hardware, model) == (FOLDER / f"{hardware}__{model}.json").read_text(encoding="utf-8")


def start_text(name: str) -> str:
    return planned(f"{STARTS[name]} workload=prompt_7k4", "qwen38_flash_next_q2_0", 7400).to_json()


@pytest.mark.parametrize(("name", "strategy"), [("sata_cached", "mapped"), ("nvme_small", "unbuffered")])
def test_the_start_that_auto_takes(name: str, strategy: str) -> None:
    assert plan_dict(start_text(name))["startup"]["strategy"] == strategy
    assert start_text(name) == (FOLDER / f"start_{name}.json").read_text(encoding="utf-8")


def test_no_golden_plan_is_left_over() -> None:
    wanted = {f"{hardware}__{model}" for hardware, model in PAIRS} | {f"start_{name}" for name in STARTS}
    assert {path.stem for path in FOLDER.glob("*.json")} == wanted


def write_all() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in STARTS:
        (FOLDER / f"start_{name}.json").write_text(start_text(name), encoding="utf-8")
    for hardware, model in PAIRS:
        (FOLDER / f"{hardware}__{model}.json").write_text(golden_text(hardware, model), encoding="utf-8")


if __name__ == "__main__":
    write_all()
