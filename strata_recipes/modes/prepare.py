"""From a composed config to a plan and the folder that records it: what every mode does before its own work."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from hydra.core.hydra_config import HydraConfig

from strata_recipes.config.choices import Dense, Device, ModeName, Order, Residuals, Strategy
from strata_recipes.config.compose import config_hash, resolved_yaml
from strata_recipes.config.other_modes import passed_over
from strata_recipes.config.schema import Compute, Config
from strata_recipes.decide import Decided, build_plan, decide
from strata_recipes.errors import EXIT_INTERRUPTED, FileError, StrataError
from strata_recipes.files.residency import cached_bytes
from strata_recipes.machine.facts import DEVICE, Machine
from strata_recipes.machine.gpu import find_card
from strata_recipes.machine.probe import differences, resolve_hardware
from strata_recipes.modes.models import ModelFacts, scale_index
from strata_recipes.modes.shortage import memory_told
from strata_recipes.pack.cache import cache_root
from strata_recipes.pack.index import PackIndex
from strata_recipes.pack.input_file import stated_as
from strata_recipes.pack.profile import Order as ExpertOrder
from strata_recipes.pack.profile import learned_on, load_profile, with_profile
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.plan import Plan
from strata_recipes.results.machine_facts import machine_json
from strata_recipes.results.metrics import EmulatedMetrics
from strata_recipes.results.record import ResultsFolder
from strata_recipes.results.status import Status, ended
from strata_recipes.text.prompt import Prompt, prompt_ids, prompt_length

LEAST_CAPABILITY = (8, 0)  # of the kernels


@dataclass(frozen=True, eq=False)
class Prepared:
    """A config with every fact literal, the machine it is planned for, the plan, and the prompt where it can be read."""

    config: Config
    machine: Machine
    emulated: EmulatedMetrics
    plan: Plan
    decided: Decided  # the same plan, with the simulation that it was chosen by
    order: ExpertOrder  # (layer, expert) pairs, hottest first, that the plan was made from
    prompt: Prompt | None
    folder_hash: str


def prepare(config: Config, facts: ModelFacts | Pack, tokens: int | None = None) -> Prepared:
    """Probe what is not stated, read the prompt, plan. Allocates nothing. `tokens`: planned for, in place of the prompt's own."""
    folder_hash = config_hash(config)
    resolved, machine = literal(config, facts)
    prompt = None if _uncountable(config, facts) else prompt_ids(config.workload, facts)
    if tokens is None:
        tokens = prompt_length(config.workload) if prompt is None else len(prompt.ids)
    index, order = ordered(config, facts)
    decided = decide(resolved, machine, index, tokens, scale_of=scale_index(config), order=order)
    notes = [*(() if prompt is None else prompt.notes), *_of_other_modes(config), *_unnamed(config, index)]
    plan = dataclasses.replace(decided.plan, notes=(*decided.plan.notes, *(note for note in notes if note not in decided.plan.notes)))
    decided = dataclasses.replace(decided, plan=plan)
    return Prepared(resolved, machine, EmulatedMetrics(differences(machine), plan.emulate), plan, decided, order, prompt, folder_hash)


def literal(config: Config, facts: ModelFacts | Pack) -> tuple[Config, Machine]:
    """The config with every fact literal, and the machine that they make; what was found, not stated, is named in `hardware.probed`."""
    hardware, machine = resolve_hardware(config.hardware, drive_folder(facts), cached_share=lambda: cached_share(facts))
    compute = _computing(config.compute, machine)
    if compute.device is not config.compute.device:
        hardware = dataclasses.replace(hardware, probed=sorted([*hardware.probed, DEVICE]))
    return dataclasses.replace(config, hardware=hardware, compute=compute), machine


def replanner(prepared: Prepared, facts: ModelFacts | Pack) -> Callable[[Machine], Plan]:
    """The plan of the same config on another PC, with the order and the start-up that were chosen on this one."""
    index, order = ordered(prepared.config, facts)
    plan, config, scale = prepared.plan, prepared.config, scale_index(prepared.config)
    prefill = dataclasses.replace(config.prefill, order=Order(plan.prefill.order))
    if prefill.order is Order.chunked:  # what was stated of layer-major order does not go with it
        prefill = dataclasses.replace(prefill, super_chunk="auto", residuals=Residuals.auto, dense=Dense.auto)
    start = dataclasses.replace(config.startup, strategy=Strategy(plan.startup.strategy))
    same = dataclasses.replace(config, prefill=prefill, startup=start)
    return lambda machine: build_plan(same, machine, index, plan.prefill.prompt_tokens, scale_of=scale, order=order)


def _computing(asked: Compute, machine: Machine) -> Compute:
    """`device` as a literal: the card that is here and can run the kernels, where the planned PC has one and torch is built for it."""
    if asked.device is not Device.auto:
        return asked
    card = find_card() if machine.gpu is not None else None
    able = card is not None and tuple(int(part) for part in card.capability.split(".")) >= LEAST_CAPABILITY
    return dataclasses.replace(asked, device=Device.cuda if able and _torch_has_cuda() else Device.cpu)


def _torch_has_cuda() -> bool:
    """By its files: torch itself takes seconds to import."""
    found = find_spec("torch")
    folders = () if found is None else found.submodule_search_locations or ()
    return any(list((Path(folder) / "lib").glob("*torch_cuda*")) for folder in folders)


@contextmanager
def recorded(prepared: Prepared, overrides: list[str]) -> Iterator[ResultsFolder]:
    """The results folder of the run, written before the work; an error in the work is recorded there and goes on."""
    folder = results_folder(prepared.config, prepared.folder_hash)
    machine = machine_json(prepared.machine, prepared.emulated.facts)
    again = dataclasses.replace(prepared.config, results=dataclasses.replace(prepared.config.results, folder=None))
    folder.write_before(resolved_yaml(again), overrides, machine, prepared.plan)
    with end_told(folder, prepared.plan):
        yield folder


@contextmanager
def end_told(folder: ResultsFolder, plan: Plan | None = None) -> Iterator[None]:
    """An error in the block is recorded in the folder and goes on."""
    try:
        with memory_told():
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


def results_folder(config: Config, folder_hash: str) -> ResultsFolder:
    """The stated one, or a new one below the results root."""
    results = config.results
    if results.folder is not None:
        return ResultsFolder.at(Path(results.folder).expanduser())
    kind = recipe() or config.mode.name.value
    return ResultsFolder.make(Path(results.root).expanduser(), kind, folder_hash, datetime.now())


def _record(folder: ResultsFolder, status: Status, plan: Plan | None) -> None:
    """The end of a run that failed; a folder that cannot be written any more must not hide why."""
    try:
        folder.end(status, plan)
    except FileError as error:
        print(f"note: {error}", file=sys.stderr)


def prompt_tokens(config: Config, facts: ModelFacts | Pack) -> int | None:
    """How long the prompt is; None where that is not known without the model's tokenizer."""
    return prompt_length(config.workload) if _uncountable(config, facts) else len(prompt_ids(config.workload, facts).ids)


def drive_folder(facts: ModelFacts | Pack) -> Path:
    """Where the drive is probed: the pack's folder, or the cache where there is no pack yet."""
    return facts.folder if isinstance(facts, Pack) else cache_root()


def cached_share(facts: ModelFacts | Pack) -> float | None:
    """Of the experts, what the page cache holds now, to six digits; a pack that is not written yet will be cold."""
    if not isinstance(facts, Pack):
        return 0.0
    held, size = cached_bytes(facts.experts_path), facts.index.experts_file_bytes
    return None if held is None else float(f"{held / size:.6g}") if size else 0.0


def ordered(config: Config, facts: ModelFacts | Pack) -> tuple[PackIndex, ExpertOrder]:
    """The order of experts: experts.profile, else the pack's."""
    if config.experts.profile is None:
        return facts.index, facts.order()
    path = Path(os.path.expanduser(config.experts.profile))
    with stated_as("experts.profile", config.experts.profile):
        order = load_profile(path, facts.index)
        return with_profile(facts.index, path, order), order


def recipe() -> str | None:
    """The recipe of this run, which its folder is named after."""
    choice = HydraConfig.get().runtime.choices.get("recipe") if HydraConfig.initialized() else None
    return str(choice) if choice else None


def _of_other_modes(config: Config) -> Iterator[str]:
    yield from passed_over(config)
    if config.experts.profile_save is not None and config.mode.name not in (ModeName.run, ModeName.plan):
        yield f"experts.profile_save does not apply to mode={config.mode.name.value}, which writes no reply"


def _unnamed(config: Config, index: PackIndex) -> Iterator[str]:
    """A profile that does not say whose it is, as those of earlier versions do not."""
    stated = config.experts.profile
    if stated is not None and learned_on(Path(os.path.expanduser(stated)), index) is None:
        yield f"experts.profile={stated} names no model: it is taken for one of {index.name}, as its layers and experts fit"


def _uncountable(config: Config, facts: ModelFacts | Pack) -> bool:
    """A named model without files: its prompt can only be counted where no tokenizer is needed."""
    return isinstance(facts, ModelFacts) and facts.index.pack_id == "declared"
