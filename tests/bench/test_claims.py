"""Claims: read strictly, bounds at their edges, numbers found in documents and in what a command prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from strata_recipes.bench.claims import Claim, claims_of, value_of
from strata_recipes.errors import ConfigError

GOOD = {
    "name": "a", "says": "so", "command": "python run.py", "metric": "bench.json:identity.tokens_md5", "bound": "== equal", "size": "small",
}  # fmt: skip
SHIPPED = Path(__file__).parents[2] / "benchmarks" / "claims.yaml"


def claim(**changes: str) -> Claim:
    (found,) = claims_of({"claims": [GOOD | changes]}, "claims.yaml")
    return found


@pytest.mark.parametrize(
    ("bound", "value", "holds"),
    [
        ("<= 0.1", 0.1, True), ("<= 0.1", 0.1001, False), (">= 4", 4, True), (">= 4", 3.999, False), ("< 5", 5, False), ("> -1", 0, True),
        ("== 7", 7.0, True), ("== equal", "equal", True), ("== equal", "differ", False), ("== 1", True, False), ("== 1", "1", False),
        ("<= 1", None, False), ("<=1e3", 1000, True),
    ],
)  # fmt: skip
def test_bounds_at_their_edges(bound: str, value: Any, holds: bool) -> None:
    assert claim(bound=bound).holds(value) is holds


@pytest.mark.parametrize(
    ("label", "printed", "value"),
    [
        ("chunked / layer_major", "chunked / layer_major                        8.63  (wanted: >= 4)", 8.63),
        ("direct reads of the same file:", "x\nholds: direct reads of the same file: 1,052.5, wanted >= 0.90", 1052.5),
        ("rate", "rate -3e-2", -0.03), ("rate", "rate\n5", None), ("rate", "no such label", None),
    ],
)  # fmt: skip
def test_a_printed_number_is_the_first_after_its_label(label: str, printed: str, value: float | None) -> None:
    assert value_of(claim(metric=f"printed:{label}"), None, printed) == value


def test_a_number_in_a_document_whose_keys_hold_dots() -> None:
    found = {"differences": {"b": {"prefill.seconds": {"ratio": 0.5}}}}
    assert value_of(claim(metric="bench.json:differences.b.prefill.seconds.ratio"), found, "") == 0.5
    assert value_of(claim(metric="bench.json:differences.c.ratio"), found, "") is None


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"bound": "about 3"}, "bound 'about 3' does not begin with one of"),
        ({"metric": "ready_s"}, "metric 'ready_s' is not FILE:KEY"),
        ({"size": "tiny"}, "size 'tiny' is none of small, large"),
        ({"command": "rm x"}, "does not begin with `python `"),
        ({"says": 3}, "has no says"),
        ({"extra": "x"}, "has a key extra"),
    ],
)
def test_a_fault_names_its_claim(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as told:
        claims_of({"claims": [GOOD, GOOD | {"name": "b"} | changes]}, "claims.yaml")
    assert "claims.yaml, claim 2" in str(told.value) and fault in str(told.value)


@pytest.mark.parametrize("data", [None, [], {"claim": []}, {"claims": 3}, {"claims": ["x"]}, {"claims": [GOOD, GOOD]}])
def test_what_is_no_claim_file(data: Any) -> None:
    with pytest.raises(ConfigError, match="claims"):
        claims_of(data, "claims.yaml")


def test_the_shipped_claims_are_well_formed_and_the_small_ones_hang_on_no_clock() -> None:
    found = claims_of(yaml.safe_load(SHIPPED.read_text(encoding="utf-8")), SHIPPED.name)
    small = [each for each in found if each.size == "small"]
    assert len(small) >= 5 and len(found) > len(small)
    assert not [each.name for each in small if any(word in each.metric for word in ("seconds", "_s.", "per_s", "printed:"))]
