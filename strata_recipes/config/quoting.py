"""How a value is written so that a shell and then Hydra's override grammar hand it on unchanged. Text in, text out."""

from __future__ import annotations

import shlex

from hydra.core.override_parser.types import Quote, QuotedString


def quoted(key: str, value: str, quote: Quote = Quote.single) -> str:
    """`key='value'` in Hydra's grammar: any text at all."""
    return f"{key}={QuotedString(value, quote).with_quotes()}"


def advice(line: str) -> str:
    """How to write an override whose value Hydra's grammar does not take bare, for sh, PowerShell and cmd."""
    key, _, value = line.partition("=")
    value = _unquoted(value)
    double, single = quoted(key, value, Quote.double), quoted(key, value)
    powershell = single.replace("`", "``").replace("$", "`$").replace('"', '`"')
    cmd = single.replace('"', '\\"')
    return f'write {shlex.quote(double)} in sh, "{powershell}" in PowerShell, "{cmd}" in cmd'


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value
