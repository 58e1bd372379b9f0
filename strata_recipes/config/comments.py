"""What schema.py says of its own keys: the docstring of each class, and the comment that ends the line of each field."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from dataclasses import dataclass
from pathlib import Path

from strata_recipes.config import schema


@dataclass(frozen=True)
class Said:
    """`text` of the class, and of its fields by name."""

    text: str
    fields: dict[str, str]


@functools.cache
def said() -> dict[str, Said]:
    """By class name. The source is read: comments are nowhere else."""
    source = Path(schema.__file__).read_text(encoding="utf-8")
    comments = {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {node.name: Said(" ".join((ast.get_docstring(node) or "").split()), _fields(node, comments)) for node in classes}


def _fields(node: ast.ClassDef, comments: dict[int, str]) -> dict[str, str]:
    found = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    return {str(getattr(item.target, "id", "")): comments.get(item.end_lineno or item.lineno, "") for item in found}
