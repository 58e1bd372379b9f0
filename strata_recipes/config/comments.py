"""What the schema's source says of its own keys: the docstring of each class, and the comment that ends the line of each field."""

from __future__ import annotations

import ast
import functools
import inspect
import io
import tokenize
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Said:
    """`text` of the class, and of its fields by name."""

    text: str
    fields: dict[str, str]


def said(cls: type) -> Said:
    """Of a schema class. The source is read: comments are nowhere else."""
    return _file(inspect.getfile(cls))[cls.__name__]


@functools.cache
def _file(path: str) -> dict[str, Said]:
    source = Path(path).read_text(encoding="utf-8")
    comments = {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {node.name: Said(" ".join((ast.get_docstring(node) or "").split()), _fields(node, comments)) for node in classes}


def _fields(node: ast.ClassDef, comments: dict[int, str]) -> dict[str, str]:
    """A field over several lines says it on its first or its last."""
    found = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    return {str(getattr(item.target, "id", "")): comments.get(item.lineno) or comments.get(item.end_lineno or 0, "") for item in found}
