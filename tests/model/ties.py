"""Says, when logits differ from an oracle, which close choices may have flipped: routers' and indexers', with both scores."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import torch

from strata_recipes.model import router
from strata_recipes.model.indexer import Indexer
from strata_recipes.model.qwen4_exp import Qwen4Exp
from tests.model.drive import distance, logits


def explain(model: Qwen4Exp, pack: Any, tiers: Any, ids: Any, got: np.ndarray, want: np.ndarray) -> str:
    """The distance, the first token that is off, and the narrowest choices up to it."""
    off = np.flatnonzero(np.linalg.norm(got - want, axis=1) > 1e-3 * np.linalg.norm(want, axis=1))
    first = int(off[0]) if off.size else len(ids) - 1
    lines = [f"relative L2 {distance(got, want):.2e}, tokens off: {off[:8].tolist()}; narrowest choices up to token {first}:"]
    return "\n".join(lines + narrowest(model, pack, tiers, ids[: first + 1]))


def narrowest(model: Qwen4Exp, pack: Any, tiers: Any, ids: Any, count: int = 6) -> list[str]:
    """The closest last-chosen and first-refused scores of one pass over ids."""
    found: list[tuple[float, str]] = []
    select, best = Indexer.select, router.best_experts

    def watch_blocks(self: Indexer, scores: torch.Tensor, start: int) -> torch.Tensor:
        for row, line in enumerate(scores):
            note(line[: (start + row + 1) // self.block], self.num_selected, f"token {start + row}: block")
        return select(self, scores, start)

    def watch_experts(share: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
        for row, line in enumerate(share):
            note(line, top_k, f"token {row}: expert")
        return best(share, top_k)

    def note(line: torch.Tensor, chosen: int, what: str) -> None:
        if line.numel() > chosen:
            values, columns = line.sort(descending=True)
            last, next_ = float(values[chosen - 1]), float(values[chosen])
            pair = f"{what} {int(columns[chosen - 1])} with {last:.8g} over {int(columns[chosen])} with {next_:.8g}"
            found.append(((last - next_) / max(abs(last), 1e-9), pair))

    with mock.patch.object(Indexer, "select", watch_blocks), mock.patch.object(router, "best_experts", watch_experts):
        logits(model, pack, tiers, ids, 1 << 20)
    return [text for _, text in sorted(found)[:count]]
