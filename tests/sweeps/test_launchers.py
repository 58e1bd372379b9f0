"""Every launcher and sweeper that the package names runs a real sweep, each job in a process of its own."""

from __future__ import annotations

import pytest
import yaml

from tests.sweeps.conftest import Sweep

PLAIN = ("model.scale_of=null", "prefill.chunk=64,128")


@pytest.mark.parametrize("launcher", [("joblib", "hydra.launcher.n_jobs=2"), ("submitit_local", "hydra.launcher.timeout_min=5")])
def test_a_launcher(sweep: Sweep, launcher: tuple[str, str]) -> None:
    name, setting = launcher
    done = sweep(*PLAIN, f"hydra/launcher={name}", setting)
    assert done.code == 0, done.err
    assert done.counts == {"planned": 2, "done": 2}
    assert [job["number"] for job in done.jobs] == [0, 1]
    chunks = [yaml.safe_load((done.folder / job["folder"] / "resolved.yaml").read_text())["prefill"]["chunk"] for job in done.jobs]
    assert chunks == [64, 128]
    assert {path.name for path in done.folder.iterdir()} == {
        "README.md", "jobs", "multirun.yaml", "summary.csv", "summary.png", "summary.svg", "sweep.json",
        *(job["folder"] for job in done.jobs),
    }  # fmt: skip
    assert str(done.folder) not in (done.folder / "multirun.yaml").read_text()


def test_optuna_optimizes_a_metric(sweep: Sweep) -> None:
    """More budget reads faster from RAM: of two it finds the larger, and what it was told is what the summary holds."""
    metric = "experts.ram_blobs"
    aim = ("hydra/sweeper=optuna", "hydra.sweeper.direction=maximize", "hydra.sweeper.n_trials=2", f"sweep.metrics=[{metric}]")
    budgets = ("experts=budget", "experts.ram_budget=1MiB,4MiB", "model.scale_of=null")
    done = sweep(*aim, *budgets, "hydra/sweeper/sampler=grid")
    assert done.code == 0, done.err
    found = yaml.safe_load((done.folder / "optimization_results.yaml").read_text())
    values = {row["experts.ram_budget"]: float(row["value"]) for row in done.long if row["key"] == metric}
    assert set(values) == {"1MiB", "4MiB"}
    assert found["best_params"] == {"experts.ram_budget": "4MiB"} and found["best_value"] == max(values.values())


def test_slurm_is_a_matter_of_settings(sweep: Sweep) -> None:
    """No cluster here: what would be handed to it is composed and checked."""
    shown = sweep(
        "hydra/launcher=submitit_slurm", "hydra.launcher.partition=gpu", "hydra.launcher.gpus_per_node=1", "--cfg", "hydra", flag=""
    )
    assert shown.code == 0, shown.err
    assert "partition: gpu" in shown.out and "submitit_launcher.SlurmLauncher" in shown.out
