"""Memory that is not given, at each allocation in turn: exit code 4, one sentence, all given back, and the next run is right."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from strata_recipes.engine.session import Session
from strata_recipes.errors import DeviceError, StrataError
from strata_recipes.modes.shortage import memory_told
from strata_recipes.pack.reader import open_pack
from tests.end_to_end.conftest import Strata
from tests.engine.plans import nothing_left, plan_for
from tests.faults import oracle
from tests.faults.conftest import Packed

NO_MEMORY: dict[str, Callable[[], Exception]] = {
    "mmap": lambda: OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    "numpy": lambda: MemoryError("Unable to allocate 1.00 GiB"),
    "torch": lambda: RuntimeError(
        "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes."
    ),
}


def failing(plain: Callable[..., Any], at: int, error: Callable[[], Exception], calls: list[int]) -> Callable[..., Any]:
    """`plain`, but for call number `at`."""

    def allocate(*args: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == at:
            raise error()
        return plain(*args, **more)

    return allocate


@pytest.mark.parametrize("kind", NO_MEMORY)
def test_the_whole_program_tells_it(kind: str, inside: Strata, tiny: Packed, ids_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever allocator it was, and the results folder knows."""
    monkeypatch.setattr(Session, "prompt", failing(Session.prompt, 1, NO_MEMORY[kind], []))
    words = ["model=gguf", f"model.source={tiny.made.path}", f"model.pack={tiny.folder}", f"workload.token_ids_file={ids_file}"]
    done = inside(*words, "hardware=cpu", "hardware.drive.direct=1GB/s", "hardware.drive.faults=1GB/s")
    assert done.code == 4 and "out of memory" in done.last_line and "Traceback" not in done.err
    assert done.json("status.json")["exit_code"] == 4 and "out of memory" in done.json("status.json")["error"]


@pytest.mark.parametrize(("owner", "name", "kind"), [(mmap, "mmap", "mmap"), (torch, "empty", "torch"), (np, "memmap", "mmap")])
def test_a_refused_allocation_leaves_nothing(
    owner: Any, name: str, kind: str, tiny: Packed, prompt: NDArray[np.int64], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first, the second, .. until the session gets through; then its tokens are the oracle's."""
    wanted, plain, failed = oracle.greedy(tiny.made.geometry, tiny.made.weights, prompt, 2), getattr(owner, name), 0
    for at in range(1, 60):
        calls: list[int] = []
        with open_pack(tiny.folder) as pack:
            session = Session(plan_for(pack, mode="budget", slots=2, ram_budget=100_000, file_io="direct", prompt=20, new=2), pack)
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, failing(plain, at, NO_MEMORY[kind], calls))
                try:
                    with session:
                        session.prompt(prompt)
                        tokens = session.generate().tokens
                except (OSError, RuntimeError, StrataError) as error:
                    assert "memory" in str(error)
                    tokens, failed = (), failed + 1
            use = session.ledger.use()
            assert not use.vram.used_bytes and not use.ram.used_bytes and nothing_left(pack), at
        if tokens:
            break
    assert list(tokens) == wanted and failed >= 1 and len(calls) < at


def test_a_lost_card_is_one_sentence() -> None:
    """What torch says of every call after a driver reset; other RuntimeErrors are bugs and go on."""
    with (
        pytest.raises(DeviceError, match=r"the card does not answer any more \(CUDA error: unspecified launch failure\)") as told,
        memory_told(),
    ):
        raise RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported")
    assert told.value.exit_code == 4
    with pytest.raises(RuntimeError, match="shapes"), memory_told():
        raise RuntimeError("shapes do not match")
