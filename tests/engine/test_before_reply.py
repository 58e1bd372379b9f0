"""Weights that a reply wants elsewhere move when nothing but the model holds them."""

from __future__ import annotations

import pytest

from strata_recipes.engine.prefill import prefill
from strata_recipes.engine.session import Session
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.pack.reader import Pack
from tests.engine.plans import oracle, plan_for


def test_what_else_holds_them_is_waited_for(tiny: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Qwen4Exp, "prompt_starts", lambda model: said.append("prompt"))
    monkeypatch.setattr(Qwen4Exp, "reply_starts", lambda model: said.append("reply"))
    ids = oracle("tiny-q2_0.mid")["ids"][:20]
    with Session(plan_for(tiny, prompt=20, new=4, chunk=16), tiny) as session:
        model, experts = session._ready()
        tiers, state = session.started.tiers, model.new_state()
        prefill(model, experts, tiers, state, ids, session.plan.prefill, before_reply=lambda: said.append("waited"))
    assert said == ["prompt", "waited", "reply"]
