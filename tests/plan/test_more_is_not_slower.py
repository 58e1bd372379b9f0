"""More RAM or more VRAM: the plan that auto makes of it is predicted no slower. Placements are tried in steps, hence the hundredth."""

from __future__ import annotations

import pytest

from strata_recipes.plan.plan import Plan
from tests.plan.cases import planned


def total_s(plan: Plan) -> float:
    p = plan.predicted
    return p.ready_s + p.prefill_s + plan.decode.max_new_tokens / p.decode_tokens_per_s


def falls(totals: list[float]) -> bool:
    return all(b <= a * 1.01 for a, b in zip(totals, totals[1:], strict=False))


@pytest.mark.parametrize("hardware", ["rtx3060_6gb", "rtx4090_24gb_32gb"])
def test_more_ram(hardware: str) -> None:
    sizes = (12, 20, 28, 44)
    totals = [
        total_s(planned(f"hardware={hardware} hardware.ram={size + 4}GiB hardware.available={size}GiB workload=prompt_7k4"))
        for size in sizes
    ]
    assert falls(totals), totals


@pytest.mark.parametrize("hardware", ["rtx3060_6gb", "rtx4090_24gb_32gb"])
def test_more_vram(hardware: str) -> None:
    totals = [total_s(planned(f"hardware={hardware} hardware.gpu.vram={size}GiB workload=prompt_7k4")) for size in (6, 12, 24, 48)]
    assert falls(totals), totals
    assert totals[-1] < 0.9 * totals[0]
