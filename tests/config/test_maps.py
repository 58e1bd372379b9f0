"""Arms by name on the command line, and configs told apart in single leaves that compose to the same again."""

from __future__ import annotations

import pytest

from strata_recipes.config.compose import compose_config
from strata_recipes.config.leaf_lines import leaf_lines
from strata_recipes.config.maps import map_line
from strata_recipes.config.schema import Config
from strata_recipes.errors import ConfigError

BENCH = "mode=bench"


@pytest.mark.parametrize(
    ("line", "items"),
    [
        ("bench.arms.a=[startup=mapped]", ["startup=mapped"]),
        ("bench.arms.a=[]", []),
        ("bench.arms.a=[ startup=mapped , kv=fp16 ]", ["startup=mapped", "kv=fp16"]),
        ("bench.arms.a=['workload.text=one, two',kv=fp16]", ["workload.text=one, two", "kv=fp16"]),
        ("bench.arms.a=[model.experts=[{layers:6,gate:F32}],kv=fp16]", ["model.experts=[{layers:6,gate:F32}]", "kv=fp16"]),
        ("++bench.arms.a=['startup=mapped']", ["startup=mapped"]),
        ("bench.arms.a=[model.source=C:\\models\\q2]", ["model.source=C:\\models\\q2"]),
    ],
)
def test_an_arms_overrides_need_no_quotes(line: str, items: list[str]) -> None:
    assert compose_config([BENCH, line, "bench.arms.other=[]"]).bench.arms == {"a": items, "other": []}
    assert map_line(map_line(line)) == map_line(line), "a replay's own line is left as it is"


@pytest.mark.parametrize(
    "line", ["startup.threads=3", "bench.pairs=2", "model.experts=[{layers: 1}]", "bench.checkouts.b=../other", "nonsense"]
)
def test_other_overrides_are_left_alone(line: str) -> None:
    assert map_line(line) == line


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (["bench.arms.a=startup"], "bench.arms.a: 'startup' is not a list"),
        (["bench.arms=3"], "bench.arms: 3 has no names, wanted is bench.arms.NAME=..."),
        (["bench.arms.a=[x=1]", "bench.checkouts.b=../x"], "bench.checkouts.b is of no arm: known are a"),
        ([], "mode=bench needs its arms"),
        (["bench.arms.b=[]"], "mode=bench compares arms and bench.arms.b is alone: add a second one (bench.arms.base=[] is"),
        (["bench.arms.a=[]", "bench.cache=warm", "emulate.ram=cgroup"], "bench.cache=warm does not go with emulate.ram=cgroup"),
    ],
)
def test_what_cannot_be_arms(lines: list[str], fault: str) -> None:
    with pytest.raises(ConfigError) as told:
        compose_config([BENCH, *lines])
    assert fault in str(told.value)


def test_what_a_mode_needs_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="mode=reproduce needs the folder"):
        compose_config(["mode=reproduce"])


LINES = [
    ["startup=mapped", "startup.threads=2"],
    ["hardware=rtx3060_6gb", "experts=budget", "experts.ram_budget=14GiB"],
    ["model=synthetic", "model.experts=[{layers:8,gate:Q8_0,up:F32,down:Q2_0}]", "workload=chat"],
    ["workload.text='it\\'s \\${x}, [a=b] {c: d} é 🐘'", "model.source='C:\\\\models\\\\'", "experts.verify=true"],
    ["decode=sample", "decode.temperature=1e-3", "model.pack='null'", "model.note='true'"],
]


@pytest.mark.parametrize("lines", LINES)
def test_leaf_lines_give_the_same_config_again(lines: list[str]) -> None:
    base, changed = compose_config([]), compose_config(lines)
    told = leaf_lines(changed, base)
    assert told and compose_config(told) == changed
    assert leaf_lines(base, base) == []


def test_leaf_lines_name_what_differs_and_nothing_else() -> None:
    changed = compose_config(["startup=mapped", "kv=fp16", "decode.max_new_tokens=7"])
    assert leaf_lines(changed, compose_config([])) == ["startup.strategy=mapped", "decode.max_new_tokens=7", "kv.format=fp16"]
    assert leaf_lines(Config(result="x"), Config(), without=("result",)) == []
