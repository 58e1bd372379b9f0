"""Sessions in this process under a profiler: what runs on the card and for how long none does, and which Python functions take the host's
time. Knows no benchmark's question."""

from __future__ import annotations

import cProfile
import json
import pstats
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from strata_recipes.config.compose import compose_config, register
from strata_recipes.engine.session import Session
from strata_recipes.modes.models import ready_pack
from strata_recipes.modes.prepare import prepare

ON_CARD = ("kernel", "gpu_memcpy", "gpu_memset")
LINES = 28
Ids = NDArray[np.int64]


@contextmanager
def session(overrides: Sequence[str]) -> Iterator[tuple[Session, Ids]]:
    """A session as run.py makes it, and the ids of its prompt."""
    register()
    config = compose_config(overrides)
    with ready_pack(config.model) as pack:
        prepared = prepare(config, pack)
        assert prepared.prompt is not None
        with Session(prepared.plan, pack, order=prepared.order) as opened:
            yield opened, prepared.prompt.ids


def on_the_card(work: Callable[[], object], unit: str, count: int, unit_s: float) -> list[str]:
    """Of `work`, which does `count` units. `unit_s`: of one without the profiler, which makes each kernel wait for the one before."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as kept:
        work()
        torch.cuda.synchronize()
    with TemporaryDirectory() as folder:
        kept.export_chrome_trace(str(Path(folder) / "trace.json"))
        events = json.loads((Path(folder) / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    spans = sorted((event["ts"], event["ts"] + event["dur"], event["name"]) for event in events if event.get("cat") in ON_CARD)
    busy, reached = 0.0, 0.0
    for start, end, _ in spans:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    by_name: dict[str, list[float]] = {}
    for start, end, name in spans:
        by_name.setdefault(name.split("[")[0].split("__main__")[-1][:60], []).append(end - start)
    table = sorted(by_name.items(), key=lambda one: -sum(one[1]))[:LINES]
    return [
        f"{len(spans) / count:,.0f} kernels and copies a {unit}, which take {busy / count / 1000:.2f} ms of its {unit_s * 1000:.2f}: "
        f"nothing runs in {1 - busy / count / 1e6 / unit_s:.1%} of it",
        *(f"  {sum(t) / count / 1000:7.3f} ms a {unit}, {len(t) / count:6.1f} of {sum(t) / len(t):6.1f} us: {name}" for name, t in table),
    ]


def on_the_host(work: Callable[[], object], unit: str, count: int) -> list[str]:
    """Where the host's time goes in `work`, functions by their own time. The profiler's own cost is in it, a microsecond or two a call."""
    profiler = cProfile.Profile()
    profiler.runcall(work)
    found = pstats.Stats(profiler)
    calls = found.stats  # type: ignore[attr-defined]  # by (file, line, name): calls, all calls, seconds of its own, seconds, callers
    table = sorted(calls.items(), key=lambda one: -one[1][2])[:LINES]
    return [
        f"under a profiler the host takes {found.total_tt / count * 1000:.2f} ms a {unit}",  # type: ignore[attr-defined]
        *(
            f"  {own / count * 1000:7.3f} ms a {unit}, {times / count:7.1f} calls: {Path(file).name}:{line} {name}"
            for (file, line, name), (_, times, own, _, _) in table
        ),
    ]
