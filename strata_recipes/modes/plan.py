"""mode=plan: what would be done and why, as a table for a person and a folder for a program. Allocates nothing."""

from __future__ import annotations

from strata_recipes.config.schema import Config
from strata_recipes.decide.what_if import what_if
from strata_recipes.explain import plan_table
from strata_recipes.modes.models import model_facts
from strata_recipes.modes.prepare import prepare, recorded, replanner
from strata_recipes.modes.progress import console
from strata_recipes.results.status import DONE


def plan(config: Config, overrides: list[str]) -> int:
    """Plans, prints the table, and leaves plan.json in a results folder."""
    with model_facts(config.model) as facts:
        prepared = prepare(config, facts)
        others = what_if(prepared.machine, replanner(prepared, facts))
    with recorded(prepared, overrides) as folder:
        console().print(plan_table(prepared.plan, prepared.machine, others))
        folder.end(DONE, prepared.plan)
    print(f"plan: {folder.path / 'plan.json'}")
    return 0
