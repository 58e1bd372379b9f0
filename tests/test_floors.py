"""The floors: who may import whom, who may open files, read a clock or import torch. Read from the source, nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# The longest prefix of a module's name decides. A letter orders rooms that share a floor of the table in CONTRIBUTING.md.
FLOORS = {
    "strata_recipes": "1",
    "strata_recipes.errors": "1",
    "strata_recipes.units": "1",
    "strata_recipes.npy": "1",
    "strata_recipes.config.choices": "2",
    "strata_recipes.config.kinds": "2",
    "strata_recipes.config.task_schema": "2",
    "strata_recipes.config.bench_schema": "2",
    "strata_recipes.config.schema": "2",
    "strata_recipes.machine.facts": "2",
    "strata_recipes.pack.index": "2",
    "strata_recipes.pack.layout": "2",
    "strata_recipes.plan": "3a",
    "strata_recipes.schedule": "3b",
    "strata_recipes.simulate": "3c",
    "strata_recipes.decide": "3d",
    "strata_recipes.explain": "3d",
    "strata_recipes.config": "4",
    "strata_recipes.machine": "4",
    "strata_recipes.pack": "4",
    "strata_recipes.files": "4",
    "strata_recipes.text": "4",
    "strata_recipes.tiers": "5a",
    "strata_recipes.model": "5b",
    "strata_recipes.engine": "6",
    "strata_recipes.results": "7a",
    "strata_recipes.sweeps": "7b",
    "strata_recipes.calibrate": "7b",
    "strata_recipes.bench": "7b",
    "strata_recipes.modes": "7c",
    "run": "8",
}
NEIGHBOURS = {
    ("strata_recipes.explain", "strata_recipes.decide"),  # the two of floor 3d
    ("strata_recipes.config.schema", "strata_recipes.pack.index"),  # names and values of one geometry
}
PURE_DATA = "kernels_numba.formats"
CONFIG_BLIND = ("5a", "5b", "6")
PURE_FLOORS = ("2", "3a", "3b", "3c", "3d")
PURE_ROOMS = ("strata_recipes.bench",)  # higher up, and values all the same
IMPURE_IMPORTS = {
    "os",
    "pathlib",
    "io",
    "shutil",
    "tempfile",
    "time",
    "datetime",
    "subprocess",
    "socket",
    "mmap",
    "psutil",
    "random",
    "secrets",
}
IMPURE_CALLS = {"open", "input", "print"}


def longest(name: str) -> str | None:
    """The entry of FLOORS that a module falls under; the package itself only by its own name."""
    if name == "strata_recipes":
        return name
    found = [key for key in FLOORS if name == key or name.startswith(f"{key}.")]
    return max((key for key in found if key != "strata_recipes"), key=len, default=None)


def imports(tree: ast.AST, module: str) -> Iterator[str]:
    """Every imported name as written, also inside functions; `from a import b` counts as a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*module.split(".")[: -node.level], *filter(None, [node.module])] if node.level else [node.module or ""]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def violations(module: str, source: str) -> list[str]:
    """What a module of this name may not do, but does."""
    tree = ast.parse(source)
    names = sorted(set(imports(tree, module)))
    if module.startswith("kernels_numba"):
        found = [f"imports {name}" for name in names if name.startswith("strata_recipes")]
        found += [f"imports {name} outside device.py" for name in names if name.startswith("numba.cuda") and not may_use_cuda(module, name)]
        return [f"{module} {text}" for text in found]
    own = longest(module)
    if own is None:
        return [f"{module} stands on no floor: give it one in FLOORS"]
    floor = FLOORS[own]
    found = [text for name in names for text in import_faults(own, floor, name)]
    if floor in PURE_FLOORS or own in PURE_ROOMS:
        found += [f"imports {name}" for name in names if name.split(".")[0] in IMPURE_IMPORTS]
        calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        found += [f"calls {call.id}()" for call in calls if isinstance(call, ast.Name) and call.id in IMPURE_CALLS]
    return [f"{module} (floor {floor}) {text}" for text in found]


def may_use_cuda(module: str, name: str) -> bool:
    """device.py, and ptx.py for the one decorator that makes an intrinsic."""
    return module == "kernels_numba.device" or (module == "kernels_numba.ptx" and name == "numba.cuda.extending.intrinsic")


def import_faults(own: str, floor: str, name: str) -> Iterator[str]:
    """Why a module under the FLOORS entry `own` may not import `name`; nothing where it may."""
    if name.split(".")[0] == "torch" and floor < "5":
        yield f"imports {name}"
    if name.startswith("numba.cuda") or (name.split(".")[0] == "numba" and floor < "5"):
        yield f"imports {name}, which is kernels_numba's to do"
    if name.startswith("kernels_numba") and floor < "5" and not (name.startswith(PURE_DATA) and floor >= "2"):
        yield f"imports {name}"
    if not name.startswith("strata_recipes."):
        return
    other = longest(name) or "strata_recipes"
    if other.startswith("strata_recipes.config") and floor in CONFIG_BLIND:
        yield f"reads config ({name})"
    elif FLOORS[other] > floor or (FLOORS[other] == floor and not may_stand_beside(own, other)):
        yield f"imports {name} of floor {FLOORS[other]}"


def may_stand_beside(own: str, other: str) -> bool:
    """Files of one floor import each other inside one room."""
    return own.split(".")[1:2] == other.split(".")[1:2] or (own, other) in NEIGHBOURS


def modules() -> list[tuple[str, Path]]:
    """Every source file with its dotted name."""
    files = [ROOT / "run.py", *sorted((ROOT / "strata_recipes").rglob("*.py")), *sorted((ROOT / "kernels_numba").rglob("*.py"))]
    return [(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path) for path in files]


def test_every_module_keeps_to_its_floor() -> None:
    found = [text for module, path in modules() for text in violations(module, path.read_text(encoding="utf-8"))]
    assert not found, "\n" + "\n".join(found)


def test_all_rooms_are_read() -> None:
    rooms = {module.split(".")[1] for module, _ in modules() if module.count(".")}
    assert {"config", "machine", "pack", "plan", "schedule", "files", "tiers", "model", "engine", "formats"} <= rooms


PLANTED = [
    ("strata_recipes.units", "import strata_recipes.machine.facts", "machine.facts of floor 2"),
    ("strata_recipes.units", "import kernels_numba.formats", "imports kernels_numba.formats"),
    ("strata_recipes.config.schema", "from strata_recipes.config.compose import conf_dir", "of floor 4"),
    ("strata_recipes.config.schema", "from strata_recipes.config import compose", "of floor 4"),
    ("strata_recipes.plan.budget", "def f():\n    import torch", "imports torch"),
    ("strata_recipes.plan.budget", "from torch import nn", "imports torch.nn"),
    ("strata_recipes.plan.budget", "from strata_recipes.schedule.prefill import Visit", "of floor 3b"),
    ("strata_recipes.plan.budget", "from ..simulate import routing", "of floor 3c"),
    ("strata_recipes.plan.budget", "from kernels_numba.reference import dequantize", "kernels_numba.reference"),
    ("strata_recipes.plan.budget", "text = open('x').read()", "calls open()"),
    ("strata_recipes.schedule.startup", "from time import monotonic", "imports time.monotonic"),
    ("strata_recipes.simulate.links", "import os.path", "imports os.path"),
    ("strata_recipes.simulate.links", "from strata_recipes.decide import build_plan", "of floor 3d"),
    ("strata_recipes.decide", "from pathlib import Path", "imports pathlib.Path"),
    ("strata_recipes.pack.writer", "import torch.nn", "imports torch.nn"),
    ("strata_recipes.pack.writer", "from strata_recipes.files.mapped import MappedFile", "of floor 4"),
    ("strata_recipes.text.prompt", "from strata_recipes.pack.reader import Pack", "of floor 4"),
    ("strata_recipes.tiers.vram", "from strata_recipes.config.schema import Config", "reads config"),
    ("strata_recipes.tiers.vram", "from strata_recipes.model.gdn import gdn", "of floor 5b"),
    ("strata_recipes.engine.prefill", "from strata_recipes.config.schema import Config", "reads config"),
    ("strata_recipes.model.gdn", "from numba import cuda", "kernels_numba's to do"),
    ("strata_recipes.results.record", "from strata_recipes.modes.run import run", "of floor 7c"),
    ("strata_recipes.bench.summary", "from pathlib import Path", "imports pathlib.Path"),
    ("strata_recipes.bench.summary", "from strata_recipes.modes.run import run", "of floor 7c"),
    ("strata_recipes.results.record", "from strata_recipes.bench.runs import Run", "of floor 7b"),
    ("strata_recipes.somewhere", "x = 1", "stands on no floor"),
    ("kernels_numba.reference", "from strata_recipes import units", "imports strata_recipes.units"),
    ("kernels_numba.cuda.q2_0", "import numba.cuda", "outside device.py"),
    ("kernels_numba.cuda.q2_0", "from numba import cuda", "outside device.py"),
]


@pytest.mark.parametrize(("module", "source", "expected"), PLANTED)
def test_a_planted_violation_is_found(module: str, source: str, expected: str) -> None:
    found = violations(module, source)
    assert len(found) == 1 and expected in found[0], found


ALLOWED = [
    ("strata_recipes.pack.layout", "from kernels_numba.formats import FORMATS"),
    ("strata_recipes.config.schema", "from strata_recipes.pack.index import Geometry"),
    ("strata_recipes.pack.layout", "from strata_recipes.pack.index import Geometry"),
    ("strata_recipes.plan.experts", "from strata_recipes.plan.budget import state_bytes\nfrom strata_recipes import errors"),
    ("strata_recipes.explain", "from strata_recipes.decide import build_plan"),
    ("strata_recipes.tiers.vram", "import torch\nfrom kernels_numba.cpu.dequantize import dequantize"),
    ("strata_recipes.model.kv_cache", "from strata_recipes.plan.budget import state_bytes"),
    ("strata_recipes.modes.run", "from strata_recipes.results.record import ResultsFolder\nimport time"),
    ("kernels_numba.device", "from numba import cuda"),
]


@pytest.mark.parametrize(("module", "source"), ALLOWED)
def test_what_the_floors_allow_is_not_reported(module: str, source: str) -> None:
    assert violations(module, source) == []
