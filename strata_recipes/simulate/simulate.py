"""Times of a plan on a machine: start, prompt and reply in simulated time, over the resources that each keeps busy. Reads no clock."""

from __future__ import annotations

from dataclasses import dataclass

from strata_recipes.machine.facts import Machine
from strata_recipes.pack.index import PackIndex
from strata_recipes.plan.plan import Prediction
from strata_recipes.simulate.clock import CACHE, DRIVE, LINK, NAMES, VAIN, Span
from strata_recipes.simulate.decode import Reply, Round
from strata_recipes.simulate.load import Load, PromptLoad, ReplyLoad, StartLoad, TierLoad
from strata_recipes.simulate.memory import LeastRam, least_ram
from strata_recipes.simulate.prefill import Prompt, PromptBytes
from strata_recipes.simulate.rates import rates_of
from strata_recipes.simulate.startup import StartTimes, startup
from strata_recipes.simulate.tiers import Tiers
from strata_recipes.simulate.work import work_of


@dataclass(frozen=True)
class PromptTimes:
    seconds: float
    bytes: PromptBytes
    busy_s: tuple[float, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class ReplyTimes:
    """Of the mean round."""

    round: Round
    busy_s: tuple[float, ...]
    hits: tuple[float, float, float]  # shares of a token's choices: VRAM, RAM, file


@dataclass(frozen=True)
class Timed:
    """The prediction, and the sum that candidates are compared by."""

    prediction: Prediction
    total_s: float
    start: StartTimes
    prompt: PromptTimes
    reply: ReplyTimes
    ram: LeastRam

    @property
    def vram_hit_share(self) -> float:
        return self.reply.hits[0]


class Simulator:
    """One model on one machine. Candidates that share a part of their load share its simulation."""

    def __init__(self, pack: PackIndex, machine: Machine) -> None:
        self._machine, self._dense_bytes = machine, pack.dense_bytes
        self._work, self._rates = work_of(pack), rates_of(machine)
        self._tiers: dict[TierLoad, Tiers] = {}
        self._prompts: dict[tuple[TierLoad, PromptLoad], PromptTimes] = {}
        self._replies: dict[tuple[TierLoad, ReplyLoad, int, bool], ReplyTimes] = {}

    def predict(self, load: Load) -> Timed:
        """Start-up, prompt and reply of one load."""
        start, prompt, reply = self.start(load.start), self._prompt(load), self._reply(load)
        ram = least_ram(load, self._machine.os)
        new = max(load.reply.new_tokens, 1)
        pace = load.reply.tokens_a_round / reply.round.seconds
        prediction = Prediction(
            ready_s=rounded(start.ready_s),
            prefill_s=rounded(prompt.seconds),
            prefill_tokens_per_s=rounded(load.prompt.tokens / prompt.seconds),
            decode_tokens_per_s=rounded(pace),
            lowest_available_bytes=ram.lowest_available_bytes,
            start_bound=start_bound(start),
            prefill_bound=bound(prompt.busy_s, prompt.seconds, self._rates.gpu),
            decode_bound=bound(reply.busy_s, reply.round.seconds, self._rates.gpu),
        )
        total = start.ready_s + prompt.seconds + (new / pace if load.reply.new_tokens else 0.0)
        return Timed(prediction, total, start, prompt, reply, ram)

    def start(self, load: StartLoad) -> StartTimes:
        return startup(self._machine, load, self._dense_bytes)

    def _tiers_of(self, load: TierLoad) -> Tiers:
        if load not in self._tiers:
            self._tiers[load] = Tiers(self._work.g, load, self._work.stride_bytes)
        return self._tiers[load]

    def _prompt(self, load: Load) -> PromptTimes:
        key = (load.tiers, load.prompt)
        if key not in self._prompts:
            prompt = Prompt(self._work, self._rates, self._tiers_of(load.tiers), load.prompt)
            seconds, moved = prompt.run()
            self._prompts[key] = PromptTimes(seconds, moved, tuple(prompt.clock.busy), tuple(prompt.clock.spans))
        return self._prompts[key]

    def _reply(self, load: Load) -> ReplyTimes:
        key = (load.tiers, load.reply, load.prompt.tokens, load.prompt.direct)
        if key not in self._replies:
            before = load.reply.warm_tokens + (0 if load.prompt.direct else load.prompt.tokens)  # past the cache leaves it as it was
            tiers, context = self._tiers_of(load.tiers), load.prompt.tokens + load.reply.new_tokens // 2
            reply = Reply(self._work, self._rates, tiers, load.reply, before, context)
            self._replies[key] = ReplyTimes(reply.run(), tuple(reply.clock.busy), tiers.hits())
        return self._replies[key]


def predict(pack: PackIndex, machine: Machine, load: Load) -> Timed:
    """One load alone."""
    return Simulator(pack, machine).predict(load)


def bound(busy_s: tuple[float, ...], seconds: float, gpu: bool) -> str:
    """The busiest resource and its share of the time: `drive, 93 % busy`."""
    shares = [busy / seconds if seconds else 0.0 for busy in busy_s[:VAIN]]
    most = max(range(len(shares)), key=lambda i: (float(f"{shares[i]:.6g}"), -i))
    name = NAMES[most] if most else ("GPU" if gpu else "CPU")
    return f"{name}, {min(shares[most], 1.0):.0%} busy"


def start_bound(start: StartTimes) -> str:
    busy = [0.0] * len(NAMES)
    busy[DRIVE], busy[LINK], busy[CACHE] = start.drive_s, start.link_s, start.cache_s
    if max(busy) < start.launch_s:
        return f"launch of the process, {start.launch_s / start.ready_s:.0%} of the time"
    return bound(tuple(busy), start.ready_s, True)


def rounded(value: float) -> float:
    """Nine digits: the last bits of exp and erfc differ between C libraries, and a plan must not."""
    return float(f"{value:.9g}")
