"""A recorded folder against its run on this machine: what is equal, what differs, which facts explain it. Dicts in, sentences out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strata_recipes.bench.identity import KEYS
from strata_recipes.bench.judge import at
from strata_recipes.bench.words import value_text

FIGURES = (
    "ready_s", "first_token_s", "startup.fill_s", "startup.copy_s", "prefill.seconds", "prefill.tokens_per_s", "prefill.expert_bytes_read",
    "decode.tokens_per_s", "memory.peak_rss_bytes", "memory.lowest_available_bytes",
)  # fmt: skip
STABLE_FACTS = ("os", "ram", "cpu.cores", "gpu.name", "gpu.capability", "gpu.vram")  # what makes it another machine; the rest moves
_PLACED = ("slots_checksum", "ram_checksum")
_PREDICTED = {"plan": "the plan", "fit": "what fits", "comparison": "the predicted table"}  # what is decided and timed without a run
_MOST_TOLD = 8


@dataclass(frozen=True)
class Document:
    """What a folder holds, parsed; None where a file is not there."""

    status: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None
    identity: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] | None = None
    machine: Mapping[str, Any] | None = None
    bench: Mapping[str, Any] | None = None
    fit: Mapping[str, Any] | None = None
    comparison: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Comparison:
    """`differ`: what had to be equal and is not. `facts`: what of machine, software and build is not the same. `figures`: rows of a table.

    Another build may plan otherwise: its plan, and what then lies in which tier, is a fact, not a difference.
    """

    equal: Sequence[str]
    differ: Sequence[str]
    facts: Sequence[str]
    figures: Sequence[tuple[str, str, str, str]]


def compared(there: Document, here: Document, facts_here: Mapping[str, Any]) -> Comparison:
    """`facts_here`: this machine's own facts by key, freshly probed; a replay's record repeats the recorded ones."""
    equal: list[str] = []
    differ: list[str] = []
    planned: list[str] = []
    for name, found in _checks(there, here):
        excused = (name in _PREDICTED and _commit(there) != _commit(here)) or (name in _PLACED and bool(planned))
        if not found:
            equal.append(name)
        (planned if excused else differ).extend(f"{name}: {line}" for line in found)
    facts = [*_facts(there, facts_here), *_software(there, here), *(f"{line}, by another build" for line in planned)]
    return Comparison(equal, differ, facts, list(_figures(there, here)))


def equal_told(there: Document, found: Comparison) -> str:
    """One sentence: what was compared and is equal, and what there was nothing of to compare."""
    words = {name: f"{what} ({_count(getattr(there, name)):,} values of {name}.json)" for name, what in _PREDICTED.items()}
    words["end"] = f"the end ({there.status.get('state')})"
    ran = "" if there.identity or there.bench else "; no run was recorded there, so there were no tokens, logits or checksums to compare"
    return f"equal: {', '.join(words.get(name, name) for name in found.equal) or 'nothing'}{ran}"


def _count(data: Any) -> int:
    """Values that are no section and no list."""
    if isinstance(data, Mapping | list):
        return sum(_count(part) for part in (data.values() if isinstance(data, Mapping) else data))
    return 1


def differences(there: Any, here: Any, key: str = "") -> Iterator[str]:
    """`key: 1 there, 2 here` for each leaf that differs."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for name in dict.fromkeys([*there, *here]):
            yield from differences(there.get(name), here.get(name), f"{key}.{name}".lstrip("."))
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for at_place, (one, other) in enumerate(zip(there, here, strict=True)):
            yield from differences(one, other, f"{key}.{at_place}")
    elif there != here:
        yield f"{key} {there!r} there, {here!r} here".strip()


def _checks(there: Document, here: Document) -> Iterator[tuple[str, list[str]]]:
    """(what, how it differs) of everything that the recorded folder has to be compared."""
    yield "end", list(differences(there.status.get("state"), here.status.get("state")))
    for name in _PREDICTED:
        if (then := getattr(there, name)) is not None:
            now = {key: value for key, value in (getattr(here, name) or {}).items() if key in then}  # keys are added, never renamed
            yield name, _shortened(list(differences(then, now)))
    for key in KEYS:
        if there.identity and there.identity.get(key) is not None:
            yield key, list(differences(there.identity[key], (here.identity or {}).get(key)))
    if there.bench is not None:
        yield "bench identity", list(differences(there.bench["identity"], (here.bench or {}).get("identity", {})))
        for arm in there.bench["arms"]:
            yield f"arm {arm}", list(differences(_arm_identity(there.bench, arm), _arm_identity(here.bench or {}, arm)))


def _arm_identity(bench: Mapping[str, Any], arm: str) -> Any:
    """Checksums of an arm's first counted run."""
    runs = [run for run in bench.get("runs", []) if run["arm"] == arm and run["mark"] == "counted"]
    return dict(runs[0]["identity"]) if runs else None


def _facts(there: Document, here: Mapping[str, Any]) -> Iterator[str]:
    """Only what was probed: a stated or emulated fact is the same everywhere."""
    recorded = at(there.machine or {}, "facts") or {}
    for key in STABLE_FACTS:
        fact = recorded.get(key)
        if fact and fact["how"] == "probed" and fact["value"] != here.get(key):
            yield f"{key}: {fact['value']} there, {here.get(key)} here"


def _commit(document: Document) -> Any:
    return at(document.machine or {}, "source.commit")


def _software(there: Document, here: Document) -> Iterator[str]:
    for part in ("software", "source"):
        one, other = ((document.machine or {}).get(part) or {} for document in (there, here))
        yield from differences(one, other, part)


def _figures(there: Document, here: Document) -> Iterator[tuple[str, str, str, str]]:
    if there.metrics is not None:
        yield from (_row(key, key, at(there.metrics, key), at(here.metrics or {}, key)) for key in FIGURES)
    for arm, found in (there.bench or {}).get("arms", {}).items():
        now = at(here.bench or {}, f"arms.{arm}.figures") or {}
        for key, one in found["figures"].items():
            yield _row(f"{arm}, {key}", key, one and one["mean"], at(now, key) and at(now, key)["mean"])


def _row(name: str, key: str, there: float | None, here: float | None) -> tuple[str, str, str, str]:
    ratio = f"{here / there:.3g}" if there and here is not None else ""
    return name, value_text(key, there), value_text(key, here), ratio


def _shortened(lines: list[str]) -> list[str]:
    more = len(lines) - _MOST_TOLD
    return lines if more <= 1 else [*lines[:_MOST_TOLD], f"and {more} more keys"]
