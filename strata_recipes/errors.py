"""The error families, and the exit code each one ends the process with.

A message is one sentence for the person at the keyboard: what, where, both numbers, what to do.
"""

from __future__ import annotations

from collections.abc import Sequence

EXIT_DONE = 0
EXIT_REFUSED = 2
EXIT_FILES = 3
EXIT_DEVICE = 4
EXIT_DIFFERS = 5
EXIT_INTERRUPTED = 130


class StrataError(Exception):
    """Base of every error that a user can cause or meet; anything else is a bug and keeps its traceback."""

    exit_code: int = EXIT_REFUSED


class ConfigError(StrataError):
    """Every fault of a config at once, each naming key, value and remedy."""

    def __init__(self, faults: str | Sequence[str]) -> None:
        self.faults: tuple[str, ...] = (faults,) if isinstance(faults, str) else tuple(faults)
        if not self.faults:
            raise ValueError("a ConfigError needs at least one fault")
        super().__init__("; ".join(self.faults))


class PlanError(StrataError):
    """A budget falls short: which one, by how much, and which knob helps."""


class PackError(StrataError):
    """A model source or a pack does not hold what it must hold."""

    exit_code = EXIT_FILES


class FileError(StrataError):
    """A file is missing, short, changed or unreadable: names file, offset, length and errno."""

    exit_code = EXIT_FILES


class DeviceError(StrataError):
    """A device or its memory cannot do what the plan asks."""

    exit_code = EXIT_DEVICE


class ModelError(StrataError):
    """The model's arithmetic went wrong (a NaN in a router): names layer and token."""

    exit_code = EXIT_DEVICE


class ClaimError(StrataError):
    """What was measured or computed again is not what was claimed or recorded: names both."""

    exit_code = EXIT_DIFFERS
