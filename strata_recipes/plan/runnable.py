"""Whether this version can run what it can plan. Pure: it reads the plan alone."""

from __future__ import annotations

from strata_recipes.errors import PlanError
from strata_recipes.plan.plan import Plan

KV_FORMATS = ("fp32", "fp16")


def runnable(plan: Plan) -> None:
    """PlanError where mode=run must not start, before anything is allocated."""
    if plan.model.pack_id == "declared":
        raise PlanError(
            f"model {plan.model.name} has no weights, only declared sizes: use mode=plan, or a model of kind gguf, hf or synthetic"
        )
    if plan.kv.format not in KV_FORMATS:
        raise PlanError(f"kv.format={plan.kv.format} can be planned but not run in this version: use kv=fp16 or kv=fp32")
