"""What may be asked of sweeps, mode=calibrate and mode=profile: part of the schema, with its own file for its size."""

from __future__ import annotations

from dataclasses import dataclass, field

from strata_recipes.config.kinds import Bytes, leaf


@dataclass
class Sweep:
    """Of runs started by -m alone."""

    resume: bool = False  # a job that a folder below results.root has done already, by its config's hash, is not run again
    jobs_per_gpu: int = leaf("count", 1, low=1)  # at the same time, over all launchers and sweeps of this user
    metrics: list[str] = field(default_factory=list)  # keys of metrics.json: columns and plots, and what a sweeper optimizes


@dataclass
class Calibrate:
    """Of mode=calibrate, which measures this PC."""

    name: str = "this_pc"  # of the profile that is written: hardware=NAME takes it
    folder: str | None = None  # the config folder that it goes into; null: the user's own, which every run looks into
    rounds: int = leaf("count", 5, low=2)  # each number is measured so often, all of them in turn
    file_bytes: Bytes = leaf("bytes", 256 << 20, low=64 << 20)  # of the temporary file that is read


@dataclass
class Profile:
    """Of mode=profile, which collects how often each expert is chosen."""

    files: list[str] = field(default_factory=list)  # any texts, each read as one prompt
    merge: str | None = None  # an earlier profile, whose counts are added
    out: str | None = None  # where it goes; null: profile.npz in the results folder
