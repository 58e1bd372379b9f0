"""Real plans for the tiny reference, and what the tests compare of a run."""

from __future__ import annotations

import dataclasses
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata_recipes.config.choices import Arithmetic, Dense, Device, Draft, ExpertsMode, FileIo, KvFormat, Order, Residuals
from strata_recipes.config.schema import Adapt, Config, Model, Startup
from strata_recipes.decide import build_plan
from strata_recipes.engine.session import Session
from strata_recipes.machine.facts import Cpu, Drive, Gpu, Machine
from strata_recipes.pack.reader import Pack
from strata_recipes.pack.sources import open_source
from strata_recipes.pack.writer import build_pack
from strata_recipes.plan.plan import Plan
from strata_recipes.units import GiB, MiB

DATA = Path(__file__).parents[1] / "data"
SHIPPED = "shipped:storyteller"
MACHINE = Machine("test", "linux", 16 * GiB, 12 * GiB, Cpu(1, 1e10, 1e10), None, Drive(1e9, 1e9, 1e9))

WITH_CARD = dataclasses.replace(MACHINE, gpu=Gpu("card", "8.6", 64 * MiB, 64 * MiB, 1e11, 1e12, 1e10))  # its VRAM is an arena here


def pack_tiny(name: str, folder: Path) -> Path:
    return pack_from(name, str(DATA / f"{name}.gguf"), folder)


def pack_from(name: str, source: str, folder: Path) -> Path:
    with open_source(Model(name=name, source=source)) as opened:
        build_pack(opened, folder)
    return folder


def plan_for(
    pack: Pack,
    *,
    mode: str = "auto",
    slots: int | str = "auto",
    ram_budget: int | None = None,
    file_io: str = "auto",
    chunk: int | str = "auto",
    order: str = "chunked",
    super_chunk: int | str = "auto",
    residuals: str = "auto",
    dense: str = "auto",
    prefetch: bool = True,
    direct: bool | str = False,
    direct_min: float = 0.5,
    warm: bool = False,
    machine: Machine = MACHINE,
    prompt: int = 40,
    new: int = 48,
    verify: bool = False,
    kv: str = "fp32",
    resident: int | str = "auto",
    startup: Startup | None = None,
    arithmetic: str = "f32",
    device: str = "auto",
    draft: str = "none",
    draft_tokens: int | str = "auto",
    adapt: Adapt | None = None,
) -> Plan:
    config = Config(startup=startup or Startup())
    config.experts.mode, config.experts.slots, config.experts.file_io = ExpertsMode(mode), slots, FileIo(file_io)
    config.experts.ram_budget, config.experts.verify = ram_budget, verify
    config.prefill.chunk, config.decode.max_new_tokens, config.kv.format = chunk, new, KvFormat(kv)
    config.kv.resident_tokens = resident
    config.prefill.order, config.prefill.super_chunk, config.prefill.residuals = Order(order), super_chunk, Residuals(residuals)
    config.prefill.dense = Dense(dense)
    config.prefill.prefetch, config.prefill.direct = prefetch, direct
    config.experts.adapt = adapt or Adapt()
    config.compute.arithmetic, config.compute.device = Arithmetic(arithmetic), Device(device)
    config.decode.draft, config.decode.draft_tokens = Draft(draft), draft_tokens
    config.prefill.direct_min, config.prefill.warm = direct_min, warm
    return build_plan(config, machine, pack.index, prompt)


def oracle(name: str) -> dict[str, NDArray[Any]]:
    with np.load(DATA / "oracle" / f"{name}.npz") as stored:
        return {key: stored[key] for key in stored}


def run(plan: Plan, pack: Pack, ids: NDArray[Any], logits: str = "all") -> tuple[NDArray[np.float32], tuple[int, ...]]:
    """All logits of the prompt, and the reply."""
    with Session(plan, pack, poison=True) as session:
        read = session.prompt(ids, logits=logits)
        assert read.logits is not None
        return read.logits, session.generate().tokens


def nothing_left(pack: Pack) -> bool:
    """No thread of ours, no mapping and no open file of the experts."""
    ours = [thread for thread in threading.enumerate() if thread.name.startswith(("stager", "startup", "at-once"))]
    handles = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    return not ours and str(pack.experts_path) not in [*handles, *Path("/proc/self/maps").read_text().split()]
