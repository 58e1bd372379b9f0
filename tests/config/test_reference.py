"""The generated docs are those of the schema as it is, and the JSON schema accepts what the program accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from strata_recipes.config.compose import compose_config, conf_dir, leaves, resolved_yaml
from strata_recipes.config.json_schema import schema_files
from strata_recipes.config.reference import DOCS, files, reference
from strata_recipes.config.schema import Config


def test_docs_are_fresh() -> None:
    """Else: python -m strata_recipes.config.reference"""
    made = files()
    stale = [name for name, text in made.items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert not stale
    assert {path.name for path in (DOCS / "schema").iterdir()} == {Path(name).name for name in made if name.startswith("schema/")}


def test_every_key_is_told_once() -> None:
    keys = [line.split("`")[1] for line in reference().splitlines() if line.startswith("| `")]
    assert keys == [leaf.key for leaf in leaves(Config)]
    assert "| `startup.merge` | a size such as 6GiB, 6 GB or 6_000 and at least 1 | `33554432` | the largest read:" in reference()


SHIPPED = sorted(path for path in conf_dir().glob("*/*.yaml") if path.parent.name in schema_files())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_shipped_files_are_valid(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    of_all = text.startswith("# @package _global_")  # it sets other groups' keys too
    jsonschema.validate(yaml.safe_load(text), schema_files()["config" if of_all else path.parent.name])


def test_a_whole_config_is_valid_and_faults_are_not() -> None:
    whole: Any = schema_files()["config"]
    jsonschema.Draft202012Validator.check_schema(whole)
    data = yaml.safe_load(resolved_yaml(compose_config(["hardware=rtx3060_6gb", "decode=sample", "results.logits=last"])))
    jsonschema.validate(data, whole)
    assert json.loads((DOCS / "schema" / "config.json").read_text(encoding="utf-8")) == whole
    for wrong in ({"prefil": {}}, {"prefill": {"chunk": "6 apples"}}, {"prefill": {"order": "sideways"}}, {"kv": {"max_context": 0}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, whole)
