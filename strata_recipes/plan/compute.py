"""Which arithmetic runs where, and which model exactly was planned for. Knows no times."""

from __future__ import annotations

import dataclasses
import json

import xxhash

from strata_recipes.config.choices import Device
from strata_recipes.config.schema import Compute, Model
from strata_recipes.machine.facts import Machine
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.plan import ComputePlan, Decision, ModelPlan


def plan_compute(asked: Compute, machine: Machine) -> tuple[ComputePlan, list[Decision]]:
    """Device and threads of the planned PC."""
    gpu, cores = machine.gpu, machine.cpu.cores
    stated = isinstance(asked.threads, int)
    threads = asked.threads if isinstance(asked.threads, int) else cores
    why = f"stated; {machine.name} has {cores} cores" if stated else f"auto: one a core of {machine.name}"
    device = "cpu" if gpu is None else "cuda"
    card = "cpu" if gpu is None else f"cuda, sm_{gpu.capability.replace('.', '')}, {gpu.name}"
    because = f"{machine.name} has no GPU" if gpu is None else f"{machine.name} has one"
    decisions = [Decision("compute.device", card, because), Decision("compute.threads", threads, why)]
    return ComputePlan(asked.arithmetic.value, threads, device, runs_on(asked, machine)), decisions


def runs_on(asked: Compute, machine: Machine) -> str:
    """cuda or cpu; an `auto` that nobody resolved knows of no card."""
    return "cuda" if machine.gpu is not None and asked.device is Device.cuda else "cpu"


def plan_model(asked: Model, pack: PackIndex, scale: float) -> ModelPlan:
    """The model's identity: its files by pack_id, its shape by a digest."""
    stored = [dataclasses.astuple(layer) for layer in pack.layers] + [dataclasses.astuple(tensor) for tensor in pack.dense]
    shape = [dataclasses.asdict(pack.geometry), stored, pack.profile_id]
    digest = xxhash.xxh3_64_hexdigest(json.dumps(shape).encode())
    return ModelPlan(pack.name, pack.pack_id, asked.pack or "cache", scale, digest)
