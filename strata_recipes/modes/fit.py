"""mode=fit: does it fit, how fast will it be, what would help. One screen for one PC, or a line for every shipped profile."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from strata_recipes.config.compose import compose_config, conf_dir, config_hash, resolved_yaml
from strata_recipes.config.schema import Config, Hardware
from strata_recipes.decide import build_plan
from strata_recipes.decide.what_if import remedies, what_if
from strata_recipes.errors import PlanError
from strata_recipes.machine.facts import Machine
from strata_recipes.machine.probe import differences
from strata_recipes.modes.fitted import Asked, Fit, fit_json, fit_page, fit_screen, fits_table
from strata_recipes.modes.models import ModelFacts, model_facts, scale_index
from strata_recipes.modes.prepare import end_told, literal, ordered, prepare, prompt_tokens, results_folder
from strata_recipes.modes.progress import console
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.plan import Plan
from strata_recipes.results.machine_facts import machine_json
from strata_recipes.results.status import DONE

PROBED = ("auto", "cpu")  # profiles that are this PC
UNSTATED_TOKENS = 512  # of a prompt where the config states none but the demo's own line, whose 4 tokens tell no speed


def fit(config: Config, overrides: list[str]) -> int:
    """Prints the answer and leaves it in a folder; exit code 2 where the one PC that was asked for cannot hold the model."""
    own = compose_config()
    asked = Asked(config.model.name, config.decode.max_new_tokens, UNSTATED_TOKENS if config.workload == own.workload else None)
    with model_facts(config.model) as facts:
        if config.mode.profiles:
            _leave(config, overrides, asked, list(_every(config, own.hardware, asked, facts)))
        else:
            _leave(config, overrides, asked, [fit_on(config, facts, asked, others=True)])
    return 0


def _leave(config: Config, overrides: list[str], asked: Asked, found: list[Fit]) -> None:
    """The folder first, then the answer on the screen and in it."""
    one = None if config.mode.profiles else found[0]
    resolved = next((fit.config for fit in found if fit is one or fit.stated), config)  # shipped PCs need no word of this one's
    kept = dataclasses.replace(resolved, results=dataclasses.replace(config.results, folder=None))
    folder = results_folder(config, config_hash(config))
    machine = None if one is None else machine_json(one.machine, differences(one.machine))
    folder.write_before(resolved_yaml(kept), overrides, machine, one and one.plan)
    with end_told(folder):
        folder.started()
        screen = fits_table(asked, found) if one is None else fit_screen(asked, one)
        console().print(screen)
        folder.write("fit.json", fit_json(asked, found))
        folder.write("README.md", fit_page(asked, screen, folder.name))
        if one is not None and one.plan is None:
            raise PlanError(one.why)
        folder.end(DONE)
    print(f"results: {folder.path}")


def profiles() -> list[str]:
    """Every shipped PC."""
    return sorted(path.stem for path in Path(conf_dir(), "hardware").glob("*.yaml") if path.stem not in PROBED)


def _every(config: Config, own: Hardware, asked: Asked, facts: ModelFacts | Pack) -> Iterator[Fit]:
    """The PC that was stated, where it is none of the shipped ones, and those."""
    shipped = [compose_config([f"hardware={name}"]).hardware for name in profiles()]
    if config.hardware not in (own, *shipped):
        yield dataclasses.replace(fit_on(config, facts, asked), stated=True)
    for hardware in shipped:
        yield fit_on(dataclasses.replace(config, hardware=hardware), facts, asked)


def fit_on(config: Config, facts: ModelFacts | Pack, asked: Asked, others: bool = False) -> Fit:
    """`others`: what a better PC would give, or what would make it fit."""
    resolved, machine = literal(config, facts)
    index, order = ordered(config, facts)
    tokens, scale = asked.unstated_tokens or prompt_tokens(config, facts), scale_index(config)

    def plan(on: Machine) -> Plan:
        return build_plan(resolved, on, index, tokens, scale_of=scale, order=order)

    try:
        found = prepare(resolved, facts, tokens=asked.unstated_tokens).plan
        found = dataclasses.replace(found, notes=(*found.notes, *asked.notes()))
        return Fit(resolved, machine, found, "", what_if(machine, plan) if others else [])
    except PlanError as error:
        return Fit(resolved, machine, None, str(error), remedies(machine, plan) if others else [])
