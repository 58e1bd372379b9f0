"""How the next token is chosen and what is guessed ahead of it, every value settled. Knows no model."""

from __future__ import annotations

from collections.abc import Iterator

from strata_recipes.config.choices import Draft, Sampler
from strata_recipes.config.schema import Decode
from strata_recipes.plan.plan import Decision, DecodePlan

TEMPERATURE, TOP_K, TOP_P, SEED = 0.6, 20, 0.95, 0  # the seed's runs sampled at 0.6; 20 and 0.95 are the model maker's
MOST_ROWS = 8  # tokens of one pass
DRAFT_TOKENS = 4  # the last token and four guesses: a peer's window holds up to five guesses from text


def plan_decode(asked: Decode) -> DecodePlan:
    """Greedy is temperature 0 with nothing cut off; sampled takes what is stated or the defaults."""
    draft = asked.draft.value, draft_tokens(asked)
    if asked.sampler is Sampler.greedy:
        return DecodePlan("greedy", asked.max_new_tokens, asked.stop_at_eos, 0.0, 0, 1.0, 0, *draft)
    return DecodePlan(
        "sample",
        asked.max_new_tokens,
        asked.stop_at_eos,
        TEMPERATURE if asked.temperature is None else float(asked.temperature),
        TOP_K if asked.top_k is None else asked.top_k,
        TOP_P if asked.top_p is None else float(asked.top_p),
        SEED if asked.seed is None else asked.seed,
        *draft,
    )


def draft_tokens(asked: Decode) -> int:
    """Guesses that one pass verifies at most."""
    if asked.draft is Draft.none:
        return 0
    return asked.draft_tokens if isinstance(asked.draft_tokens, int) else DRAFT_TOKENS


def draft_decision(asked: Decode) -> Decision:
    """On where it is stated alone: how many guesses are right hangs on the text, which no plan knows."""
    if asked.draft is Draft.none:
        because = "off unless stated: a pass over guesses reads more experts, and pays only where the text repeats what came before"
    else:
        because = f"stated: up to {draft_tokens(asked)} tokens that followed the longest earlier match are verified in one pass"
    return Decision("decode.draft", asked.draft.value, because)


def draft_faults(asked: Decode) -> Iterator[str]:
    """What is asked of drafts and cannot be had."""
    if asked.draft is Draft.mtp:
        yield "decode.draft=mtp is not built in this version: use decode.draft=suffix, or none"
    if asked.draft_tokens == "auto":
        return
    if asked.draft is Draft.none:
        yield f"decode.draft_tokens={asked.draft_tokens} does not go with decode.draft=none: use decode.draft=suffix"
    if int(asked.draft_tokens) >= MOST_ROWS:
        yield (
            f"decode.draft_tokens={asked.draft_tokens} is more than the {MOST_ROWS - 1} that a pass of {MOST_ROWS} tokens can verify: "
            "use at most that, or auto"
        )


def draft_notes(asked: Decode, file_blobs: int) -> Iterator[str]:
    """What a person should know who asks for drafts."""
    if asked.draft is Draft.none:
        return
    name = f"decode.draft={asked.draft.value}"
    if asked.max_new_tokens < 3:
        yield f"{name} has nothing to guess: of decode.max_new_tokens={asked.max_new_tokens} one comes with the prompt, one with a pass"
        return
    yield f"decode is predicted without drafts: how many of {name} are right hangs on the text"
    if file_blobs:
        yield (
            f"{name} with {file_blobs:,} experts in the file: measured elsewhere, an engine bound by its drive read 73 to 77 % more "
            "experts a token with drafts and wrote 0.31 instead of 0.46 tokens/s; decode.draft=none is the default"
        )
