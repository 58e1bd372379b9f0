"""From a composed config to a plan and the folder that records it: what every mode does before its own work."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hydra.core.hydra_config import HydraConfig

from strata_recipes.config.bench_schema import Bench
from strata_recipes.config.compose import config_hash, resolved_yaml
from strata_recipes.config.schema import Config
from strata_recipes.decide import build_plan
from strata_recipes.errors import EXIT_INTERRUPTED, FileError, StrataError
from strata_recipes.files.residency import cached_bytes
from strata_recipes.machine.facts import Machine
from strata_recipes.machine.probe import differences, resolve_hardware
from strata_recipes.modes.models import ModelFacts, scale_index
from strata_recipes.pack.cache import cache_root
from strata_recipes.pack.index import PackIndex
from strata_recipes.pack.profile import Order, load_profile, order_id
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.plan import Plan
from strata_recipes.results.machine_facts import machine_json
from strata_recipes.results.metrics import EmulatedMetrics
from strata_recipes.results.record import ResultsFolder
from strata_recipes.results.status import Status, ended
from strata_recipes.text.prompt import Prompt, prompt_ids, prompt_length


@dataclass(frozen=True, eq=False)
class Prepared:
    """A config with every fact literal, the machine it is planned for, the plan, and the prompt where it can be read."""

    config: Config
    machine: Machine
    emulated: EmulatedMetrics
    plan: Plan
    order: Order  # (layer, expert) pairs, hottest first, that the plan was made from
    prompt: Prompt | None
    folder_hash: str


def prepare(config: Config, facts: ModelFacts | Pack) -> Prepared:
    """Probe what is not stated, read the prompt, plan. Allocates nothing."""
    folder_hash = config_hash(config)
    hardware, machine = resolve_hardware(config.hardware, drive_folder(facts), cached_share=lambda: cached_share(facts))
    resolved = dataclasses.replace(config, hardware=hardware)
    prompt = None if _uncountable(config, facts) else prompt_ids(config.workload, facts)
    tokens = prompt_length(config.workload) if prompt is None else len(prompt.ids)
    index, order = _ordered(config, facts)
    plan = build_plan(resolved, machine, index, tokens, scale_of=scale_index(config), order=order)
    notes = [*(() if prompt is None else prompt.notes), *_of_other_modes(config)]
    plan = dataclasses.replace(plan, notes=(*plan.notes, *(note for note in notes if note not in plan.notes)))
    return Prepared(resolved, machine, EmulatedMetrics(differences(machine), plan.emulate), plan, order, prompt, folder_hash)


@contextmanager
def recorded(prepared: Prepared, overrides: list[str]) -> Iterator[ResultsFolder]:
    """The results folder of the run, written before the work; an error in the work is recorded there and goes on."""
    root = Path(prepared.config.results.root).expanduser()
    folder = ResultsFolder.make(root, recipe() or prepared.config.mode.name.value, prepared.folder_hash, datetime.now())
    machine = machine_json(prepared.machine, prepared.emulated.facts)
    folder.write_before(resolved_yaml(prepared.config), overrides, machine, prepared.plan)
    with end_told(folder, prepared.plan):
        yield folder


@contextmanager
def end_told(folder: ResultsFolder, plan: Plan | None = None) -> Iterator[None]:
    """An error in the block is recorded in the folder and goes on."""
    try:
        yield
    except StrataError as error:
        _record(folder, ended(error.exit_code, str(error)), plan)
        raise
    except KeyboardInterrupt:
        _record(folder, ended(EXIT_INTERRUPTED, "interrupted"), plan)
        raise
    except BaseException as error:  # a bug: the folder says so, and it goes on with its traceback
        _record(folder, ended(1, f"{type(error).__name__}: {error}"), plan)
        raise


def _record(folder: ResultsFolder, status: Status, plan: Plan | None) -> None:
    """The end of a run that failed; a folder that cannot be written any more must not hide why."""
    try:
        folder.end(status, plan)
    except FileError as error:
        print(f"note: {error}", file=sys.stderr)


def drive_folder(facts: ModelFacts | Pack) -> Path:
    """Where the drive is probed: the pack's folder, or the cache where there is no pack yet."""
    return facts.folder if isinstance(facts, Pack) else cache_root()


def cached_share(facts: ModelFacts | Pack) -> float | None:
    """Of the experts, what the page cache holds now, to six digits; a pack that is not written yet will be cold."""
    if not isinstance(facts, Pack):
        return 0.0
    held, size = cached_bytes(facts.experts_path), facts.index.experts_file_bytes
    return None if held is None else float(f"{held / size:.6g}") if size else 0.0


def _ordered(config: Config, facts: ModelFacts | Pack) -> tuple[PackIndex, Order]:
    """The order of experts: experts.profile, else the pack's."""
    if config.experts.profile is None:
        return facts.index, facts.order()
    order = load_profile(Path(config.experts.profile).expanduser(), facts.index)
    return dataclasses.replace(facts.index, profile_id=order_id(order)), order


def recipe() -> str | None:
    """The recipe of this run, which its folder is named after."""
    choice = HydraConfig.get().runtime.choices.get("recipe") if HydraConfig.initialized() else None
    return str(choice) if choice else None


def _of_other_modes(config: Config) -> Iterator[str]:
    """A recipe of a bench may be planned or run as it is: what the bench alone reads is then noted."""
    stated = [f"bench.{name}" for name, value in vars(config.bench).items() if value != getattr(Bench(), name)]
    if stated:
        yield f"{', '.join(stated)} do not apply to mode={config.mode.name.value}: mode=bench reads them"


def _uncountable(config: Config, facts: ModelFacts | Pack) -> bool:
    """A named model without files: its prompt can only be counted where no tokenizer is needed."""
    return isinstance(facts, ModelFacts) and facts.index.pack_id == "declared"
