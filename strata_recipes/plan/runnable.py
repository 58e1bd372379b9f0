"""Whether this version can run what it can plan. Pure: it reads the plan alone."""

from __future__ import annotations

from strata_recipes.errors import PlanError
from strata_recipes.plan.plan import Plan


def runnable(plan: Plan) -> None:
    """PlanError where mode=run must not start, before anything is allocated."""
    if plan.model.pack_id == "declared":
        raise PlanError(
            f"model {plan.model.name} has no weights, only declared sizes: use mode=plan, or a model of kind gguf, hf or synthetic"
        )
