"""One hash of all that a kernel's Python body reaches: code, constants, closures, device functions, intrinsics. Compiles nothing."""

from __future__ import annotations

import dataclasses
import dis
import functools
import hashlib
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba.core.types import Type

_PLAIN = (bool, int, float, str, bytes, type(None), np.generic, Type)


def fingerprint(*parts: Any) -> str:
    """sha256 hex, the same in every process. TypeError where a part reaches an object of which nothing stable can be told."""
    return _digest(_lines(parts))


def _digest(lines: Iterator[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _lines(value: Any) -> Iterator[str]:
    function = _python_function(value)
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, tuple | list):
        yield f"{len(value)} of"
        for one in value:
            yield from _lines(one)
    elif isinstance(value, dict):
        yield from _lines([*value.items()])
    elif isinstance(value, np.ndarray):
        yield f"array {value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    elif function is not None:
        yield _function_digest(function)
        yield from _lines(sorted(getattr(value, "targetoptions", {}).items()))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield type(value).__qualname__
        yield from _lines([getattr(value, field.name) for field in dataclasses.fields(value)])
    else:
        yield _name(value)


def _python_function(value: Any) -> types.FunctionType | None:
    """Of a plain function, numba's dispatcher or intrinsic, or a cached function of ours. A plain one is itself, whatever it wraps."""
    for name in ("py_func", "_defn", "__wrapped__"):
        value = value if isinstance(value, types.FunctionType) else getattr(value, name, value)
    return value if isinstance(value, types.FunctionType) else None


@functools.cache
def _function_digest(function: types.FunctionType) -> str:
    """Its code, defaults and closure, and the globals that it reads; a library's function goes by its name."""
    return _digest(_function_lines(function))


def _function_lines(function: types.FunctionType) -> Iterator[str]:
    yield f"{function.__module__}.{function.__qualname__}"
    if _is_library(function.__globals__.get("__name__")):  # `__module__` can be that of what it wraps
        return
    code = function.__code__
    yield _code_digest(code)
    yield from _lines((function.__defaults__, function.__kwdefaults__))
    yield from _lines([cell.cell_contents for cell in function.__closure__ or ()])
    for name in _globals_read(code):
        if name in function.__globals__:
            yield from _lines((name, function.__globals__[name]))


@functools.cache
def _code_digest(code: types.CodeType) -> str:
    constants = [sorted(map(repr, one)) if isinstance(one, frozenset) else one for one in code.co_consts]
    inner = [_code_digest(one) if isinstance(one, types.CodeType) else one for one in constants]
    arguments = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return fingerprint(code.co_code, arguments, code.co_names, code.co_varnames, code.co_freevars, inner)


@functools.cache
def _globals_read(code: types.CodeType) -> list[str]:
    names = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(_globals_read(constant))
    return sorted(names)


def _is_library(module: str | None) -> bool:
    """Not ours, nor our tests', nor of text that was executed."""
    return (module or "").split(".")[0] in ("numba", "numba_cuda", "numpy", "llvmlite", "math", "builtins", "inspect", "functools")


def _name(value: Any) -> str:
    """Of a library's module, type or function; anything else could change without its name."""
    if isinstance(value, types.ModuleType) and _is_library(value.__name__):
        return f"module {value.__name__}"
    if type(value).__module__.startswith("llvmlite.ir"):
        return f"type {value}"
    stable = _is_library(value.__module__) if isinstance(value, type) else isinstance(value, types.BuiltinFunctionType | np.ufunc)
    if stable:  # a class of ours can hold constants that the body reads
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', None) or value.__name__}"
    raise TypeError(f"a kernel reaches {value!r}, of which no fingerprint can be made: pass it as an argument, or as numbers")
