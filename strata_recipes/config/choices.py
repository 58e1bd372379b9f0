"""The words that a config may choose from: one enum a choice. Values are the words themselves."""

from __future__ import annotations

from enum import Enum


class Choice(Enum):
    """Prints as the config's word, in messages too."""

    def __str__(self) -> str:
        return self.name


class Os(Choice):
    linux = "linux"
    windows = "windows"


class Source(Choice):
    """Where a model's weights come from; `declared` has none, only geometry and sizes."""

    gguf = "gguf"
    hf = "hf"
    synthetic = "synthetic"
    declared = "declared"


class ExpertsMode(Choice):
    auto = "auto"
    full_arena = "full_arena"
    resident = "resident"
    budget = "budget"
    mapped = "mapped"


class Device(Choice):
    """What computes: a card where the plan has one and this PC too, or the CPU in its stead."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class FileIo(Choice):
    auto = "auto"
    buffered = "buffered"
    direct = "direct"


class Strategy(Choice):
    auto = "auto"
    mapped = "mapped"
    unbuffered = "unbuffered"


class Order(Choice):
    auto = "auto"
    chunked = "chunked"
    layer_major = "layer_major"


class Residuals(Choice):
    """Where a super-chunk keeps its residual streams: on the card, or in page-locked RAM."""

    auto = "auto"
    vram = "vram"
    host = "host"


class Dense(Choice):
    """Where a layer-major prompt has the layers' dense weights: in VRAM, or going up from page-locked RAM once a pass."""

    auto = "auto"
    resident = "resident"
    streamed = "streamed"


class Sampler(Choice):
    greedy = "greedy"
    sample = "sample"


class Draft(Choice):
    """Where guesses of the next tokens come from: from text that came before, or from the model's own layer for it."""

    none = "none"
    suffix = "suffix"
    mtp = "mtp"


class KvFormat(Choice):
    fp32 = "fp32"
    fp16 = "fp16"
    int8 = "int8"
    q4_0 = "q4_0"


class Arithmetic(Choice):
    f32 = "f32"
    bf16 = "bf16"
    f16 = "f16"
    q8 = "q8"


class Template(Choice):
    """Whether a text is wrapped in the model's chat template; auto: if the model has one."""

    auto = "auto"
    none = "none"
    chat = "chat"


class EmulateRam(Choice):
    auto = "auto"
    ledger = "ledger"
    cgroup = "cgroup"
    ballast = "ballast"


class EmulateLinks(Choice):
    none = "none"
    throttle = "throttle"


class Logits(Choice):
    none = "none"
    last = "last"
    all = "all"


class ModeName(Choice):
    run = "run"
    plan = "plan"
    pack = "pack"
    fit = "fit"
    simulate = "simulate"
    calibrate = "calibrate"
    profile = "profile"
    bench = "bench"
    verify = "verify"
    reproduce = "reproduce"


class BenchCache(Choice):
    """What of the pack lies in the page cache before each run of a bench: nothing, all, or what is there anyway."""

    cold = "cold"
    warm = "warm"
    asis = "asis"


class ClaimSize(Choice):
    """Claims that mode=verify runs: those that take a minute and no timing, or every one."""

    small = "small"
    all = "all"
