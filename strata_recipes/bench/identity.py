"""Whether runs computed the same: each checksum over all runs that have one. Knows no time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from strata_recipes.bench.runs import Mark, Run

KEYS = ("tokens_md5", "first_logits_md5", "slots_checksum", "ram_checksum", "pack_id")
COMPUTED = KEYS[:2]  # what must not depend on where experts live; checksums of tiers do, by their content
EQUAL, DIFFER, NOT_TAKEN = "equal", "differ", "not taken"


def identity(runs: Sequence[Run]) -> dict[str, str]:
    """equal, differ or not taken for each checksum, over the runs that ended with one."""
    return {key: _verdict({value for run in runs if (value := run.identity.get(key)) is not None}) for key in KEYS}


def with_other_tokens_marked(runs: Sequence[Run], base: str) -> list[Run]:
    """Counted runs that computed something else than the first counted run of the base arm are counted no more."""
    truth = next((run for run in runs if run.arm == base and run.counted), None)
    return [run if truth is None else _compared(run, truth) for run in runs]


def _compared(run: Run, truth: Run) -> Run:
    told = [key for key in COMPUTED if run.identity.get(key) != truth.identity.get(key)]
    if not run.counted or not told:
        return run
    why = ", ".join(f"{key} {run.identity.get(key)}, in {truth.arm} {truth.identity.get(key)}" for key in told)
    return dataclasses.replace(run, mark=Mark.other_tokens, why=why)


def _verdict(found: set[str]) -> str:
    if not found:
        return NOT_TAKEN
    return EQUAL if len(found) == 1 else DIFFER
