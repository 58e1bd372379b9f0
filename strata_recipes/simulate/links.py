"""Seconds a byte from each place of an expert to where it is computed, from a machine's rates. Knows no model."""

from __future__ import annotations

from dataclasses import dataclass

from strata_recipes.machine.facts import Machine


@dataclass(frozen=True)
class Links:
    """Seconds a byte. Steps of one way add: nothing overlaps here."""

    vram: float  # out of a slot, by the kernels
    ram: float  # the RAM tier
    cached: float  # the file, from the page cache
    cold: float  # the file, through page faults
    direct: float  # the file, by direct reads
    dense: float  # start-up: file to where dense weights live
    memory: float  # of the memory that dense weights and state are read from
    flop: float  # seconds an operation
    up: float  # between RAM and where experts are computed: nothing without a GPU


def links(machine: Machine) -> Links:
    """With a GPU all experts are computed there, and those outside VRAM pass a page-locked buffer; without one, on the CPU."""
    drive, ram = machine.drive, 1 / machine.cpu.bandwidth
    gpu = machine.gpu
    if gpu is None:
        cold = 1 / drive.faults + ram
        return Links(ram, ram, 1 / drive.cached, cold, 1 / drive.direct + ram, cold, ram, 1 / machine.cpu.flops, 0.0)
    memory, up = 1 / gpu.bandwidth, 1 / gpu.pcie
    return Links(
        vram=memory,
        ram=ram + up,
        cached=1 / drive.cached + up,
        cold=1 / drive.faults + up,
        direct=1 / drive.direct + up,
        dense=1 / drive.faults + up,
        memory=memory,
        flop=1 / gpu.flops,
        up=up,
    )
