"""A chat template over messages, in a sandbox. What users wrote is marked so that it cannot pass for a control token.

Does not know tokens: `Tokenizer.encode_template` reads the marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from strata_recipes.errors import ConfigError, PackError

# What a template's own expressions may raise while it runs; SecurityError and UndefinedError are TemplateErrors.
_FAULTS = (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Rendered:
    """A rendered template; `mark` stands before every would-be control string that came from a message."""

    marked: str
    mark: str

    @property
    def text(self) -> str:
        return self.marked.replace(self.mark, "")


class _RefusedByTemplateError(Exception):
    """The template called raise_exception."""


def render(
    template: str,
    messages: Sequence[Mapping[str, str]],
    control: Iterable[str] = (),
    bos_token: str = "",
    eos_token: str = "",
) -> Rendered:
    """The messages through the template, ready for the assistant's turn. `control`: the tokenizer's control strings."""
    if not messages:
        raise ConfigError("workload.messages is empty: state at least one message with role and content")
    mark = _unused([template, *(text for message in messages for text in message.values())])
    marker = _Marker(control, mark)
    marked = [{key: marker.marked(text) for key, text in message.items()} for message in messages]
    facts = {"messages": marked, "add_generation_prompt": True, "bos_token": bos_token, "eos_token": eos_token}
    try:
        return Rendered(_compiled(template).render(**facts, tools=None, documents=None), mark)
    except _RefusedByTemplateError as error:
        raise ConfigError(f"the model's chat template refuses workload.messages: {error}".replace(mark, "")) from error
    except _FAULTS as error:
        raise PackError(f"the model's chat template fails ({type(error).__name__}: {error}): use workload.template=none") from error


def _compiled(template: str) -> jinja2.Template:
    # The clock is not offered (strftime_now): the same config must give the same prompt.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    try:
        return environment.from_string(template)
    except jinja2.TemplateSyntaxError as error:
        raise PackError(f"the model's chat template has a fault in line {error.lineno} ({error}): use workload.template=none") from error


def _raise_exception(message: str) -> None:
    raise _RefusedByTemplateError(message)


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, sort_keys: bool = False) -> str:
    """Plain JSON: jinja's own filter escapes < > & ' for HTML, which no model was trained on."""
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, sort_keys=sort_keys)


def _unused(texts: Sequence[str]) -> str:
    """A private-use character that no text holds: white space to nobody, so templates trim as they would."""
    used = set().union(*texts)
    return next(mark for mark in map(chr, range(0xF0000, 0xFFFFE)) if mark not in used)


class _Marker:
    """Puts the mark before control strings in a text, and where a template could complete a part of one."""

    def __init__(self, control: Iterable[str], mark: str) -> None:
        whole = [text for text in control if text]
        heads = {text[:n] for text in whole for n in range(1, len(text))}
        starts = [re.escape(text) for text in whole] + [re.escape(head) + r"\s*\Z" for head in heads]  # templates trim
        self._starts_re = re.compile("(?=" + "|".join(starts) + ")") if starts else None
        self._tails = tuple({text[n:] for text in whole for n in range(1, len(text))})
        self._mark = mark

    def marked(self, text: str) -> str:
        """The text with its marks; without any where nothing looks like a control string."""
        if self._starts_re is None:
            return text
        body = text.lstrip()
        lead = text[: len(text) - len(body)]
        completes = self._mark if body.startswith(self._tails) else ""
        return lead + completes + self._starts_re.sub(self._mark, body)
