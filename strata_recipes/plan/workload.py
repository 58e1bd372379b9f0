"""Which prompt is meant: its source, what fixes its content, and about how long it is. Reads no file."""

from __future__ import annotations

import dataclasses
import json

import xxhash

from strata_recipes.config.schema import Workload
from strata_recipes.plan.plan import WorkloadPlan

SOURCES = ("token_ids_file", "tokens", "text_file", "messages", "text")  # the first stated wins
CHARS_A_TOKEN = 4  # of English text in a byte-level vocabulary, for an estimate
UNKNOWN_TOKENS = 512  # of a file that nobody has read


def stated_sources(asked: Workload) -> list[str]:
    """Sources that the config states, in the order in which they win."""
    return [name for name in SOURCES if getattr(asked, name) not in (None, [])]


def plan_workload(asked: Workload) -> WorkloadPlan:
    """The winning source and a digest over what the config states of it."""
    source = next(iter(stated_sources(asked)), "text")
    seed = (asked.seed or 0) if source == "tokens" else 0
    value = getattr(asked, source)
    content = [dataclasses.asdict(message) for message in value] if source == "messages" else value
    text = json.dumps([source, content, asked.template.value, seed], ensure_ascii=False)
    return WorkloadPlan(source, asked.template.value, xxhash.xxh3_64_hexdigest(text.encode("utf-8", "surrogatepass")), seed)


def estimated_tokens(asked: Workload) -> int:
    """A guess at the prompt's length where nobody has counted it; exact for a synthetic prompt."""
    source = next(iter(stated_sources(asked)), "text")
    if source == "tokens":
        return asked.tokens or 0
    if source in ("token_ids_file", "text_file"):
        return UNKNOWN_TOKENS
    texts = [message.content for message in asked.messages] if source == "messages" else [asked.text or ""]
    length = sum(len(text) for text in texts)
    return -(-length // CHARS_A_TOKEN)
