"""A committed folder runs again on whatever machine the tests do: what it computes is equal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.conftest import ROOT, Strata

FOLDERS = sorted(path.parent for path in (ROOT / "results" / "run").glob("*/resolved.yaml"))
# The bits of logits hang on which instructions the processor has, the plan on the build; the tokens are the same anywhere.
EQUAL = {"end", "tokens_md5", "pack_id"}


def test_there_is_one() -> None:
    assert FOLDERS


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("folder", FOLDERS[:1], ids=lambda folder: folder.name)
def test_a_committed_folder_is_reproduced(folder: Path, inside: Strata) -> None:
    done = inside("mode=reproduce", f"result='{folder}'")
    (found,) = [json.loads(path.read_text(encoding="utf-8")) for path in done.root.glob("*/*/reproduce.json")]
    assert set(found["equal"]) >= EQUAL, done.err
    assert all(line.startswith("first_logits_md5") for line in found["differ"]), found["differ"]
    assert done.code == (5 if found["differ"] else 0)
