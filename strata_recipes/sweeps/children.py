"""How the command line runs a sweep: every job in a process of its own. Imports the rest of this room only when there is a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from strata_recipes.config.schema import Config
from strata_recipes.errors import EXIT_DONE


@dataclass(frozen=True)
class Children:
    """Holds nothing, so that a launcher may carry it anywhere."""

    def begin(self, settings: DictConfig) -> Path:
        """The sweep's folder."""
        from strata_recipes.sweeps.sweep import begin  # with matplotlib, half a second that a single run need not pay

        return begin(settings)

    def job(self, folder: Path, number: int, composed: Callable[[], Config], overrides: Sequence[str]) -> float | tuple[float, ...] | None:
        """Runs one job; its objective, None where it has none."""
        from strata_recipes.sweeps.figures import job_figures, objective
        from strata_recipes.sweeps.job import run_job

        metrics: list[str] = []

        def noted() -> Config:
            config = composed()
            metrics.extend(config.sweep.metrics)
            return config

        job = run_job(folder, number, noted, overrides)
        done = job.folder is not None and job.status.exit_code == EXIT_DONE
        return objective(job_figures(folder / str(job.folder)), metrics) if metrics and done else None

    def end(self, folder: Path, settings: DictConfig, *, interrupted: bool) -> int:
        """The sweep's exit code, once its summary is written."""
        from strata_recipes.sweeps.sweep import end

        return end(folder, settings, interrupted)
