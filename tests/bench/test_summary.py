"""Means over what is counted, differences over whole pairs, identity over all: the start-up report's own table, and every odd arm."""

from __future__ import annotations

import csv
import io
import json

import pytest

from strata_recipes.bench.long_table import long_table
from strata_recipes.bench.readme import readme
from strata_recipes.bench.runs import Mark
from strata_recipes.bench.summary import summarised
from strata_recipes.bench.tables import tables
from strata_recipes.bench.words import difference_text, mean_text, number, value_text
from tests.bench.made import BASE, IDENTITY, OTHER, asked, run, series, stopped


def test_the_reports_table_comes_out_with_its_counts() -> None:
    found = series()
    mapped, unbuffered = found.figures["mapped"]["ready_s"], found.figures["unbuffered"]["ready_s"]
    assert mapped is not None and unbuffered is not None
    assert (mapped.n, round(mapped.mean, 1), round(mapped.std or 0, 1)) == (4, 42.5, 1.3)  # 42.5 +- 1.3 s (n4)
    assert (unbuffered.n, round(unbuffered.mean, 1), round(unbuffered.std or 0, 1)) == (6, 9.6, 0.8)  # 9.6 +- 0.8 s (n6)
    paired = found.differences["unbuffered"]["ready_s"]
    whole = [OTHER[pair] - base for pair, base in BASE.items() if base is not None]
    assert paired is not None and paired.n == 4 and paired.mean == pytest.approx(sum(whole) / 4)
    assert paired.certain and (paired.high or 0) < -30
    assert found.counts("mapped")["stopped"] == 2 and found.counts("unbuffered")["counted"] == 6
    assert found.lowest_available_bytes == {"mapped": 1 << 28, "unbuffered": 5 << 30}, "of stopped runs too"
    assert found.exit_code() == 0


def test_what_is_not_counted_is_in_no_mean_and_is_told() -> None:
    document = series().to_dict()
    told = document["not_measured"]
    assert [line for line in told if line.startswith("Pair 2, mapped is in no mean: stopped")]
    assert [line for line in told if line.startswith("Pair 6, mapped is in no mean: stopped")]
    assert json.loads(json.dumps(document))["arms"]["mapped"]["runs"]["counted"] == 4
    assert readme(series(), "bench/x").rstrip().endswith("Any other PC, drive, model or prompt than these.")


def test_a_fast_run_that_fell_back_does_not_win() -> None:
    runs = [run("a", 1, 10.0), run("b", 1, 1.0, mark=Mark.fell_back, why="fell back"), run("a", 2, 10.0), run("b", 2, 9.0)]
    found = summarised(asked("a", "b"), runs)
    mean = found.figures["b"]["ready_s"]
    assert mean is not None and (mean.n, mean.mean) == (1, 9.0)
    paired = found.differences["b"]["ready_s"]
    assert paired is not None and (paired.n, paired.mean) == (1, -1.0)


@pytest.mark.parametrize(("same_tokens", "mark", "code"), [(True, Mark.other_tokens, 5), (False, Mark.counted, 0)])
def test_an_arm_with_other_tokens(same_tokens: bool, mark: Mark, code: int) -> None:
    other = IDENTITY | {"tokens_md5": "dd"}
    found = summarised(asked("a", "b", same_tokens=same_tokens), [run("a", 1, 10.0), run("b", 1, 9.0, identity=other)])
    assert found.runs[1].mark is mark and found.exit_code() == code
    assert found.identity["tokens_md5"] == "differ" and found.identity["first_logits_md5"] == "equal"
    assert found.identity["slots_checksum"] == "not taken"
    assert (found.figures["b"]["ready_s"] is None) == same_tokens
    if same_tokens:
        assert found.runs[1].why == "tokens_md5 dd, in a aa"


def test_the_base_arm_may_differ_from_itself() -> None:
    runs = [run("a", 1, 1.0), run("a", 2, 1.0, identity=IDENTITY | {"first_logits_md5": "ee"}), run("b", 1, 1.0), run("b", 2, 1.0)]
    found = summarised(asked("a", "b"), runs)
    assert [each.mark for each in found.runs] == [Mark.counted, Mark.other_tokens, Mark.counted, Mark.counted]


@pytest.mark.parametrize(("mark", "code"), [(Mark.refused, 2), (Mark.failed, 4), (Mark.stopped, 4), (Mark.killed, 4), (Mark.fell_back, 5)])
def test_an_arm_without_a_counted_run_ends_with_its_code(mark: Mark, code: int) -> None:
    found = summarised(asked("a", "b"), [run("a", 1, 1.0), run("b", 1, mark=mark, why="so", identity={}, figures={})])
    assert found.exit_code() == code
    assert found.differences["b"]["ready_s"] is None and found.figures["b"]["ready_s"] is None
    assert "b: every figure, as none of its runs is counted." in found.to_dict()["not_measured"]


def test_the_warm_up_is_listed_and_in_no_mean() -> None:
    found = summarised(asked("a", "b"), [run("a", 0, 99.0), run("a", 1, 1.0), run("b", 1, 2.0)])
    mean = found.figures["a"]["ready_s"]
    assert mean is not None and mean.mean == 1.0 and found.counts("a")["counted"] == 1
    assert tables(found)[-1].rows[0][:2] == ["warm-up", "a"]


def test_csv_gives_back_what_went_in() -> None:
    name = 'a, "b"\nc'
    text = long_table(summarised(asked(name, "b"), [run(name, 1, 1.5), stopped("b", 1)]))
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["arm"] for row in rows] == [name, "b"]
    assert [row["ready_s"] for row in rows] == ["1.5", ""]
    assert [row["mark"] for row in rows] == ["counted", "stopped"] and rows[0]["tokens_md5"] == "aa"


def test_words() -> None:
    found = series()
    assert mean_text("ready_s", found.figures["mapped"]["ready_s"]) == "42.5 ± 1.27 s (n4)"
    text = difference_text("ready_s", found.differences["unbuffered"]["ready_s"])
    assert text.startswith("-33.1 ± ") and text.endswith("0.222 times (4 pairs)")
    assert mean_text("ready_s", None) == "not measured" and difference_text("ready_s", None) == "no pair"
    assert value_text("memory.peak_rss_bytes", 3 << 29) == "1.5 GiB" and value_text("startup.drive_bytes", 1 << 20) == "1 MiB"
    assert value_text("prefill.expert_bytes_read", 5 << 30) == "5 GiB" and value_text("decode.tokens_per_s", 50.25) == "50.2 tokens/s"
    assert [number(value) for value in (0.0, 12_345.0, 123.46, 0.00123)] == ["0", "12,345", "123.5", "0.00123"]
