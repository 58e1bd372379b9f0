"""How the next token is chosen, every value settled. Knows no model."""

from __future__ import annotations

from strata_recipes.config.choices import Sampler
from strata_recipes.config.schema import Decode
from strata_recipes.plan.plan import DecodePlan

TEMPERATURE, TOP_K, TOP_P, SEED = 0.6, 20, 0.95, 0  # the seed's runs sampled at 0.6; 20 and 0.95 are the model maker's


def plan_decode(asked: Decode) -> DecodePlan:
    """Greedy is temperature 0 with nothing cut off; sampled takes what is stated or the defaults."""
    if asked.sampler is Sampler.greedy:
        return DecodePlan("greedy", asked.max_new_tokens, asked.stop_at_eos, 0.0, 0, 1.0, 0)
    return DecodePlan(
        "sample",
        asked.max_new_tokens,
        asked.stop_at_eos,
        TEMPERATURE if asked.temperature is None else float(asked.temperature),
        TOP_K if asked.top_k is None else asked.top_k,
        TOP_P if asked.top_p is None else float(asked.top_p),
        SEED if asked.seed is None else asked.seed,
    )
