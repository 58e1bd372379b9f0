"""Seconds of a run: from the process's start, so that imports count; in a sweep's later jobs from the job's own start."""

from __future__ import annotations

import time

import psutil
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf


class Clock:
    """Counts from where the user began to wait."""

    def __init__(self) -> None:
        self._start = time.time() if _later_job() else psutil.Process().create_time()

    def seconds(self) -> float:
        return time.time() - self._start


def _later_job() -> bool:
    if not HydraConfig.initialized():  # a run's own process, started by the one that has the command line
        return False
    job = HydraConfig.get().job
    return not OmegaConf.is_missing(job, "num") and job.num > 0
