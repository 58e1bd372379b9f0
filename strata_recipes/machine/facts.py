"""What a PC is, as plain data: sizes in bytes, rates in bytes a second. Does not know how a fact was found."""

from __future__ import annotations

from dataclasses import dataclass

ESTIMATED = " (estimated)"  # ends the name of a fact in `probed` that is a default, not a finding
DEVICE = "compute.device"  # the one entry of a config's `probed` that is no fact of a PC: what computes was found, not asked for


@dataclass(frozen=True)
class Gpu:
    """One card. `free_bytes` is what a new process can take now; for a declared PC it equals `vram_bytes`."""

    name: str
    capability: str  # compute capability, "8.6"
    vram_bytes: int
    free_bytes: int
    bandwidth: float  # VRAM, bytes/s
    flops: float  # dense fp16 tensor operations/s
    pcie: float  # host to device from page-locked memory, bytes/s


@dataclass(frozen=True)
class Drive:
    """The drive that holds the pack."""

    direct: float  # large direct reads, bytes/s
    faults: float  # through page faults of a cold mapping, bytes/s
    cached: float  # copies out of a warm page cache, bytes/s
    cached_share: float = 0.0  # of the pack's experts.bin, in the page cache before the start


@dataclass(frozen=True)
class Cpu:
    """The processor, for the parts that run there."""

    cores: int
    bandwidth: float  # RAM, bytes/s
    flops: float  # f32 operations/s that the expert kernels reach


@dataclass(frozen=True)
class Efficiency:
    """What of the stated rates the arithmetic reaches, by kind of work."""

    prompt: float = 1.0  # of the operations a second, in the matmuls of a prompt
    decode: float = 1.0  # of the memory's bytes a second, in a reply


@dataclass(frozen=True)
class Machine:
    """All facts that a plan may use. Same facts, same config, same pack: same plan."""

    name: str
    os: str  # "linux" or "windows"
    ram_bytes: int
    ram_available_bytes: int  # see machine/memory.py for the rule
    cpu: Cpu
    gpu: Gpu | None
    drive: Drive
    efficiency: Efficiency = Efficiency()
    start_s: float = 0.0  # from the process's start until a start-up copies: interpreter, libraries, the card's context
    probed: frozenset[str] = frozenset()  # dotted hardware keys found by probing; all others are declared
