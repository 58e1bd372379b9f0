"""A recorded folder against its run here: what must be equal, and whose fault a difference is."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from strata_recipes.bench.reproduction import Document, compared, differences, equal_told

MACHINE = {
    "facts": {"ram": {"value": 8, "how": "probed"}, "os": {"value": "linux", "how": "probed"}, "gpu.vram": {"value": 6, "how": "emulated"}},
    "software": {"python": "3.11.7", "packages": {"numpy": "2.4.6"}},
    "source": {"commit": "aa", "dirty": False},
}  # fmt: skip
HERE = {"ram": 8, "os": "linux", "gpu.vram": 0}


def document() -> dict[str, Any]:
    return copy.deepcopy(
        {
            "status": {"state": "done"},
            "plan": {"vram_slots": 10, "vram": {"parts": [{"size": 1}, {"size": 2}]}},
            "identity": {"tokens_md5": "t", "first_logits_md5": "l", "slots_checksum": "s", "ram_checksum": None, "pack_id": "p"},
            "metrics": {"ready_s": 2.0, "prefill": {"seconds": 0.0}},
            "machine": MACHINE,
        }
    )


def test_the_same_run_is_equal_in_all_that_was_recorded() -> None:
    found = compared(Document(**document()), Document(**document()), HERE)
    assert found.equal == ["end", "plan", "tokens_md5", "first_logits_md5", "slots_checksum", "pack_id"]
    assert (found.differ, found.facts) == ([], [])
    assert found.figures[0] == ("ready_s", "2 s", "2 s", "1") and ("prefill.seconds", "0 s", "0 s", "") in found.figures


def test_what_was_compared_is_told_with_its_numbers() -> None:
    there = Document(**document())
    assert equal_told(there, compared(there, there, HERE)) == (
        "equal: the end (done), the plan (3 values of plan.json), tokens_md5, first_logits_md5, slots_checksum, pack_id"
    )
    planned = Document(**{key: value for key, value in document().items() if key in ("status", "plan", "machine")})
    found = compared(planned, planned, HERE)
    assert not found.figures, "no table of nothing"
    assert equal_told(planned, found) == (
        "equal: the end (done), the plan (3 values of plan.json); "
        "no run was recorded there, so there were no tokens, logits or checksums to compare"
    )


@pytest.mark.parametrize("name", ["fit", "comparison"])
def test_what_was_predicted_is_compared(name: str) -> None:
    pcs = [{"pc": "mine", "fits": True}, {"pc": "small", "fits": False}]
    there = Document(**document(), **{name: {"pcs": pcs}})
    assert name in compared(there, there, HERE).equal
    found = compared(there, Document(**document(), **{name: {"pcs": [pcs[0], {"pc": "small", "fits": True}]}}), HERE)
    assert found.differ == [f"{name}: pcs.1.fits False there, True here"]
    assert compared(there, Document(**document()), HERE).differ == [f"{name}: pcs {pcs!r} there, None here"]


def test_a_plan_that_differs_is_named_by_its_key() -> None:
    here = document()
    here["plan"]["vram"]["parts"][1]["size"] = 3
    found = compared(Document(**document()), Document(**here), HERE)
    assert found.differ == ["plan: vram.parts.1.size 2 there, 3 here"]


def test_another_build_may_plan_otherwise_but_not_compute_otherwise() -> None:
    here = document()
    here["plan"]["vram_slots"] = 9
    here["plan"]["added"] = 1
    here["identity"] |= {"slots_checksum": "other", "tokens_md5": "other"}
    here["machine"]["source"]["commit"] = "bb"
    found = compared(Document(**document()), Document(**here), HERE)
    assert found.differ == ["tokens_md5: 't' there, 'other' here"]
    assert found.facts == [
        "source.commit 'aa' there, 'bb' here",
        "plan: vram_slots 10 there, 9 here, by another build",
        "slots_checksum: 's' there, 'other' here, by another build",
    ]


@pytest.mark.parametrize(("key", "value", "told"), [("ram", 16, ["ram: 8 there, 16 here"]), ("gpu.vram", 99, [])])
def test_only_a_fact_that_was_probed_can_be_another_machines(key: str, value: int, told: list[str]) -> None:
    assert compared(Document(**document()), Document(**document()), HERE | {key: value}).facts == told


def test_a_run_that_ended_otherwise_and_left_nothing() -> None:
    found = compared(Document(**document()), Document(status={"state": "refused"}), HERE)
    assert found.differ[0] == "end: 'done' there, 'refused' here" and "pack_id: 'p' there, None here" in found.differ


def test_differences_of_lists_of_another_length_and_of_types() -> None:
    assert list(differences({"a": [1]}, {"a": [1, 2]})) == ["a [1] there, [1, 2] here"]
    assert list(differences({"a": {"b": 1}}, {"a": 1})) == ["a {'b': 1} there, 1 here"]


def bench(token: str, mark: str = "counted") -> dict[str, Any]:
    return {
        "identity": {"tokens_md5": "equal"},
        "arms": {"a.b": {"figures": {"ready_s": {"mean": 2.0}, "copy_s": None}}},
        "runs": [{"arm": "a.b", "mark": "refused", "identity": {}}, {"arm": "a.b", "mark": mark, "identity": {"tokens_md5": token}}],
    }


def test_a_bench_is_compared_arm_by_arm() -> None:
    there = Document(status={"state": "done"}, bench=bench("x"))
    same = compared(there, Document(status={"state": "done"}, bench=bench("x")), HERE)
    assert same.equal == ["end", "bench identity", "arm a.b"] and same.differ == []
    assert list(same.figures) == [("a.b, ready_s", "2 s", "2 s", "1"), ("a.b, copy_s", "not measured", "not measured", "")]
    other = compared(there, Document(status={"state": "done"}, bench=bench("y")), HERE)
    assert other.differ == ["arm a.b: tokens_md5 'x' there, 'y' here"]
    none = compared(there, Document(status={"state": "done"}, bench=bench("x", "killed")), HERE)
    assert none.differ and none.differ[0].startswith("arm a.b: ")
