"""Keys and values beyond kv.resident_tokens lie in RAM: the same bits, within both budgets. The CPU stands in for the card."""

from __future__ import annotations

from typing import Any

import pytest

from strata_recipes.pack.reader import Pack
from strata_recipes.plan.budget import KV, far_kv_bytes
from tests.engine.plans import WITH_CARD
from tests.engine.test_layer_major import IDS, S, planned, read, same

TOKENS = 130  # a query may read 16 blocks of 4 tokens: half of these choose


@pytest.mark.parametrize(("kv", "resident"), [("fp32", 1), ("fp16", 77), ("int8", 33), ("q4_0", 97)])
def test_the_same_bits(kv: str, resident: int, tiny: Pack) -> None:
    """Cut inside a block, a span and a super-chunk."""
    wanted = read(planned(tiny, TOKENS, order="chunked", super_chunk="auto", kv=kv), tiny, IDS[:TOKENS])
    orders: list[dict[str, Any]] = [dict(order="chunked", super_chunk="auto"), dict(super_chunk=S)]
    for order in orders:
        plan = planned(tiny, TOKENS, kv=kv, resident=resident, machine=WITH_CARD, **order)
        assert plan.kv.resident_tokens == resident
        assert plan.ram.part(KV) == far_kv_bytes(tiny.index.geometry, kv, plan.kv.max_context, resident) > 0
        assert same(read(plan, tiny, IDS[:TOKENS]), wanted)


def test_the_decision_and_the_notes(tiny: Pack) -> None:
    cut = planned(tiny, TOKENS, resident=64, machine=WITH_CARD)
    assert [d.value for d in cut.decisions if d.name == "kv.resident_tokens"] == [64]
    for plan, why in (
        (planned(tiny, TOKENS, resident=5000, machine=WITH_CARD), "kv.resident_tokens=5,000 is not used: the context has 136 tokens"),
        (planned(tiny, TOKENS, resident=64), "kv.resident_tokens=64 is not used: this PC has no GPU"),
    ):
        assert plan.kv.resident_tokens is None
        assert any(why in note for note in plan.notes), plan.notes
