"""Seconds a byte and an operation at each resource, from a machine's facts. Knows no model."""

from __future__ import annotations

from dataclasses import dataclass

from strata_recipes.machine.facts import Machine


@dataclass(frozen=True)
class Rates:
    gpu: bool
    flop: float  # an operation of a prompt
    cpu_flop: float  # one on the processor
    memory: float  # a byte of the memory beside the arithmetic, in a prompt
    reply_memory: float  # the same in a reply
    link: float  # a byte over PCIe; 0 without a GPU
    reply_ram: float  # a byte of RAM, in a reply
    direct: float
    faults: float
    cached: float

    def file(self, direct: bool) -> float:
        """A byte from the drive."""
        return self.direct if direct else self.faults


def rates_of(machine: Machine) -> Rates:
    """With a GPU all experts are computed there, and those outside VRAM pass a page-locked buffer; without one, on the CPU."""
    drive, gpu, ram, share = machine.drive, machine.gpu, 1 / machine.cpu.bandwidth, machine.efficiency
    flops = machine.cpu.flops if gpu is None else gpu.flops
    memory = ram if gpu is None else 1 / gpu.bandwidth
    return Rates(
        gpu=gpu is not None,
        flop=1 / (flops * share.prompt),
        cpu_flop=1 / machine.cpu.flops,
        memory=memory,
        reply_memory=memory / share.decode,
        link=0.0 if gpu is None else 1 / gpu.pcie,
        reply_ram=ram / share.decode,
        direct=1 / drive.direct,
        faults=1 / drive.faults,
        cached=1 / drive.cached,
    )
