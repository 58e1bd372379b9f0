"""How many tokens a sequence may have, and what its state takes. Knows no budget."""

from __future__ import annotations

from strata_recipes.config.schema import Kv
from strata_recipes.errors import PlanError
from strata_recipes.pack.index import Geometry
from strata_recipes.plan.budget import far_kv_bytes, state_bytes
from strata_recipes.plan.plan import Decision, KvPlan
from strata_recipes.units import gib


def max_context(asked: Kv, g: Geometry, prompt_tokens: int, new_tokens: int, chunk: int) -> int:
    """Stated, or prompt and new tokens rounded up to whole chunks; PlanError where they do not fit the context."""
    need = prompt_tokens + new_tokens
    what = f"a prompt of {prompt_tokens:,} tokens and {new_tokens:,} new ones are {need:,}"
    if need > g.context_length:
        raise PlanError(f"{what}, over the model's context of {g.context_length:,}: shorten the prompt or decode.max_new_tokens")
    if not isinstance(asked.max_context, int):
        return min(-(-need // chunk) * chunk, g.context_length)
    if asked.max_context > g.context_length:
        raise PlanError(f"kv.max_context={asked.max_context:,} is over the model's context of {g.context_length:,}: use at most that")
    if need > asked.max_context:
        raise PlanError(f"{what}, over kv.max_context={asked.max_context:,}: raise it, shorten the prompt or decode.max_new_tokens")
    return asked.max_context


def resident_tokens(asked: Kv, context: int, has_card: bool) -> int | None:
    """Tokens whose keys and values lie in VRAM, where others' do not."""
    stated = asked.resident_tokens
    return stated if has_card and isinstance(stated, int) and stated < context else None


def plan_kv(
    asked: Kv, g: Geometry, context: int, prompt_tokens: int, new_tokens: int, mean_blob: float, has_card: bool
) -> tuple[KvPlan, tuple[Decision, ...]]:
    """The cache of the chosen context, and what it costs in experts."""
    kv_format = asked.format.value
    plan = KvPlan(kv_format, context, state_bytes(g, kv_format, context), resident_tokens(asked, context, has_card))
    thousand = state_bytes(g, kv_format, context + 1024) - plan.num_bytes
    how = "stated" if isinstance(asked.max_context, int) else f"{prompt_tokens:,} prompt and {new_tokens:,} new tokens in whole chunks"
    because = (
        f"{how}; its state takes {gib(plan.num_bytes)}, and each 1,024 tokens more {gib(thousand)}, {thousand / mean_blob:,.1f} experts"
    )
    chosen = Decision("kv.max_context", context, because)
    return plan, (chosen,) if plan.resident_tokens is None else (chosen, _resident(plan, g))


def _resident(plan: KvPlan, g: Geometry) -> Decision:
    far = far_kv_bytes(g, plan.format, plan.max_context, plan.resident_tokens)
    because = (
        f"stated; {gib(far)} of the other tokens' keys and values lie in page-locked RAM, where kernels read them in place: "
        f"what a reply reads there is in the prediction, what a prompt reads is not"
    )
    return Decision("kv.resident_tokens", plan.resident_tokens, because)
