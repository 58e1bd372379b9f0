"""Every module up to floor 4 imports on Windows, where there is no torch and no numba. Run by run.sh under Wine."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import pytest

import strata_recipes
from tests.test_floors import FLOORS, longest

if sys.platform != "win32":
    pytest.skip("needs Windows", allow_module_level=True)

NAMES = [module.name for module in pkgutil.walk_packages(strata_recipes.__path__, "strata_recipes.")]
LOW = [name for name in NAMES if (entry := longest(name)) and FLOORS[entry] < "5"]


def test_the_rooms_are_there() -> None:
    rooms = {name.split(".")[1] for name in LOW}
    assert {"config", "machine", "pack", "files", "plan", "schedule", "simulate", "text", "decide", "explain"} <= rooms
    assert "strata_recipes.files.unbuffered_linux" in LOW and len(LOW) > 80


@pytest.mark.parametrize("name", LOW)
def test_it_imports(name: str) -> None:
    importlib.import_module(name)
    assert "torch" not in sys.modules and "numba" not in sys.modules
