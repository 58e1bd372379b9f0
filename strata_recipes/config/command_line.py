"""The whole command-line entry through Hydra: single runs, sweeps, --cfg, --info, --help; errors told our way.

Does not know what a job does.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

import strata_recipes
from strata_recipes import __version__
from strata_recipes.config.composition import check_request, compose_checked, finished, sweep_settings
from strata_recipes.config.names import RECIPE
from strata_recipes.config.overrides import Checked, without_sweeps
from strata_recipes.config.places import CONFIG_NAME, conf_dir, register
from strata_recipes.config.quoting import quoted
from strata_recipes.config.restated import restate
from strata_recipes.config.schema import Config
from strata_recipes.config.told import HYDRA_ERRORS, told
from strata_recipes.errors import EXIT_DONE, EXIT_INTERRUPTED, ConfigError, StrataError

Job = Callable[[Config, list[str]], int]


class Sweeps(Protocol):
    """How a sweep runs its jobs. Launchers carry it to other processes, so it can be pickled."""

    def begin(self, settings: DictConfig) -> Path:
        """Before the first job: the sweep's folder. `settings`: what all jobs share, with Hydra's own."""

    def job(self, folder: Path, number: int, composed: Callable[[], Config], overrides: Sequence[str]) -> Any:
        """One job, whose config may be refused when it is composed; what a sweeper optimizes."""

    def end(self, folder: Path, settings: DictConfig, *, interrupted: bool) -> int:
        """After the last job: the sweep's exit code."""


def hydra_main(job: Job, argv: list[str] | None = None, sweeps: Sweeps | None = None) -> int:
    """Run `job(config, overrides)` for what the command line asks; the first exit code that is not 0, else 0.

    `sweeps` runs the jobs of -m; without it they run here, one after the other.
    """
    codes: list[int] = []
    try:
        _run(job, _decoded(sys.argv[1:] if argv is None else argv), codes, sweeps)
    except StrataError as error:
        return tell(error)
    except HYDRA_ERRORS as error:
        return tell(ConfigError(told(error)))
    except KeyboardInterrupt:
        if EXIT_INTERRUPTED not in codes:  # else the job has said so
            print("strata: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else EXIT_DONE
    return next((code for code in codes if code != EXIT_DONE), EXIT_DONE)


def tell(error: StrataError) -> int:
    """Print an error as the last line, one sentence; its exit code."""
    print("strata: " + " ".join(str(error).split()), file=sys.stderr)
    return error.exit_code


def _run(job: Job, argv: list[str], codes: list[int], sweeps: Sweeps | None) -> None:
    parser = get_args_parser()
    if "--version" in argv:
        print(f"strata-recipes {__version__}")
        return
    args = parser.parse_intermixed_args(argv)
    _check_flags(args)
    name = args.config_name or CONFIG_NAME
    words = Checked(tuple(args.overrides), ())  # of --shell-completion: install=SHELL, query=SHELL
    checked = words if args.shell_completion else check_request(args.overrides, args.config_dir, name)
    if checked.faults:
        rest = without_sweeps(checked.good) if args.multirun else checked.good
        compose_checked(Checked(rest, checked.faults), args.config_dir, name)  # raises them, with what the rest has
    register()
    if sweeps is not None and _may_sweep(args):
        settings = sweep_settings(checked.good, args.config_dir, name)
        if args.multirun or settings.hydra.mode == RunMode.MULTIRUN:
            codes.append(_sweep(sweeps, settings, checked.good, _flags(parser, args)))
            return

    def task(node: DictConfig) -> None:
        codes.append(_one(job, node))
        if codes[-1] == EXIT_INTERRUPTED:
            raise KeyboardInterrupt  # a sweep's later jobs do not start

    with _hydra_sees([*checked.good, *_flags(parser, args)]):
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=CONFIG_NAME)(task)()


def _one(job: Job, node: DictConfig) -> int:
    """One job of a run or a sweep. An error of ours ends this job only; anything else is a bug and keeps its traceback."""
    try:
        return job(_config(node), list(HydraConfig.get().overrides.task))
    except StrataError as error:
        return tell(error)


def _config(node: DictConfig) -> Config:
    faults: list[str] = []
    config = finished(node, HydraConfig.get().runtime.choices, faults)
    if faults:
        raise ConfigError(faults)
    restate(config, HydraConfig.get().overrides.task)
    return config


def _may_sweep(args: Namespace) -> bool:
    """-m, or a file or override that may say so: a recipe, the user's own config, hydra.mode. Looking without running never does."""
    looking = args.cfg or args.info or args.help or args.hydra_help or args.shell_completion or args.run
    if looking or "hydra.mode=RUN" in args.overrides:
        return False
    return bool(args.multirun or args.config_dir or any(line.startswith((RECIPE, "hydra.mode")) for line in args.overrides))


@dataclass(frozen=True)
class _SweepTask:
    """What a launcher runs for each job, wherever it carries it."""

    sweeps: Sweeps

    def __call__(self, node: DictConfig) -> Any:
        hydra_config = HydraConfig.get()
        folder, number = Path(str(hydra_config.sweep.dir)), int(hydra_config.job.num)
        return self.sweeps.job(folder, number, lambda: _config(node), list(hydra_config.overrides.task))


def _sweep(sweeps: Sweeps, settings: DictConfig, overrides: Sequence[str], flags: Iterable[str]) -> int:
    """All jobs, and the summary after them, also where they were interrupted."""
    folder = sweeps.begin(settings)
    interrupted = True
    try:
        with _importable(), _hydra_sees([*overrides, quoted("hydra.sweep.dir", str(folder)), *flags]):
            hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=CONFIG_NAME)(_SweepTask(sweeps))()
        interrupted = False
    finally:
        code = sweeps.end(folder, settings, interrupted=interrupted)
    return code


def _check_flags(args: Namespace) -> None:
    """Refuse what Hydra would meet with a traceback, pass over, or answer past our own config."""
    faults: list[str] = []
    asked = [name for name in ("run", "multirun", "cfg", "info", "shell_completion") if getattr(args, name)]
    if len(asked) > 1:
        faults.append(f"--{asked[0]} and --{asked[1]} exclude each other: leave one out".replace("_", "-"))
    if (args.resolve or args.package) and not args.cfg:
        faults.append("--resolve and --package apply to --cfg only: add --cfg job, or leave them out")
    if args.config_path:
        faults.append(f"--config-path {args.config_path} would hide the shipped config: use --config-dir, which adds a folder")
    if args.experimental_rerun:
        faults.append("--experimental-rerun is not for these runs: use --config-dir FOLDER --config-name resolved")
    if faults:
        raise ConfigError(faults)


def _flags(parser: ArgumentParser, args: Namespace) -> Iterator[str]:
    """The flags of the command line again, to follow the checked overrides."""
    for action in parser._actions:
        value = getattr(args, action.dest, None)
        if action.option_strings and value:
            yield action.option_strings[0]
            if isinstance(value, str):
                yield value


def _decoded(argv: Sequence[str]) -> list[str]:
    """Arguments as UTF-8 text, also under a locale in which Python took them for something else."""
    try:
        return [os.fsencode(arg).decode("utf-8") for arg in argv]
    except UnicodeDecodeError as error:
        raise ConfigError(f"the command line holds {error.object!r}, which is not UTF-8: write it in UTF-8") from error


@contextmanager
def _hydra_sees(argv: list[str]) -> Iterator[None]:
    """Hydra reads sys.argv, and prints errors itself unless HYDRA_FULL_ERROR is set; both are put back afterwards."""
    before = sys.argv
    sys.argv = [before[0], *argv]
    try:
        with _environment("HYDRA_FULL_ERROR", "1"):
            yield
    finally:
        sys.argv = before


@contextmanager
def _importable() -> Iterator[None]:
    """Processes that a launcher starts find this package, also in a checkout that was not installed."""
    paths = [str(Path(strata_recipes.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    with _environment("PYTHONPATH", os.pathsep.join(paths)):
        yield


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
