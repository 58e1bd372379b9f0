"""What the one module that knows numba.cuda promises on a machine without a GPU, and how it reads arguments."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kernels_numba import device

ROOT = Path(__file__).resolve().parents[2]


def test_every_module_imports_with_no_driver_and_no_home(tmp_path: Path) -> None:
    names = [".".join(p.relative_to(ROOT).with_suffix("").parts) for p in sorted((ROOT / "kernels_numba").rglob("*.py"))]
    code = f"import importlib\nfor name in {names!r}: importlib.import_module(name.removesuffix('.__init__'))\nprint('all', {len(names)})"
    environment = {**os.environ, "HOME": str(tmp_path / "nowhere"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == f"all {len(names)}"


def test_a_kernel_starts_no_compiler_until_it_is_launched() -> None:
    from kernels_numba.gpu.moe import silu_kernel

    assert silu_kernel() is silu_kernel()
    assert silu_kernel().parameters == "i64 i64 i64 i64"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_driver_is_one_sentence() -> None:
    with pytest.raises(device.DeviceMismatch, match="no usable NVIDIA driver: "):
        device.check_device()
    with pytest.raises(device.DeviceMismatch, match="no usable NVIDIA driver: "):
        device.Kernel(lambda: None, "", 32).launch(1, 0)


def test_an_old_gpu_is_refused_with_driver_and_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, (7, 5))
    with pytest.raises(device.DeviceMismatch, match=r"capability 7\.5, driver for CUDA 12\.2, toolkit 12\.8: .* 8\.0 or newer"):
        device.check_device.__wrapped__()


@pytest.mark.parametrize("capability", [(8, 6), (12, 1), (9, 9)])
def test_a_gpu_nobody_has_seen_is_reported_not_refused(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    pretend(monkeypatch, capability)
    assert device.check_device.__wrapped__() == (f"compute capability {capability[0]}.{capability[1]}, driver for CUDA 12.2, toolkit 12.8")


def pretend(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    driver = SimpleNamespace(driver=SimpleNamespace(get_version=lambda: (12, 2)))
    fake = SimpleNamespace(
        get_current_device=lambda: SimpleNamespace(compute_capability=capability),
        cudadrv=SimpleNamespace(driver=driver, error=device.cuda.cudadrv.error),
        runtime=SimpleNamespace(get_version=lambda: (12, 8)),
    )
    monkeypatch.setattr(device, "cuda", fake)


def test_grids_that_do_not_fit_are_refused_and_empty_ones_never_launch() -> None:
    kernel = device.Kernel(lambda: None, "", 32)
    kernel.launch(0, 0)  # would need a driver
    with pytest.raises(ValueError, match="2147483648 blocks, the grid holds 2147483647: split the rows"):
        kernel.launch(2**31, 0)


def test_a_host_tensor_is_refused() -> None:
    with pytest.raises(ValueError, match="a tensor on cpu where a CUDA tensor is wanted"):
        device.address("x", torch.zeros(3), "float32", (3,))
    with pytest.raises(ValueError, match="ndarray is not a device array"):
        device.address("x", np.zeros(3, np.float32), "float32", (3,))


def interface(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> SimpleNamespace:
    return SimpleNamespace(__cuda_array_interface__={"typestr": dtype, "shape": shape, "strides": strides, "data": (2**53 + 4096, False)})


def test_addresses_are_64_bit_and_arguments_checked() -> None:
    assert device.address("x", interface("<f4", (2, 3)), "float32", (-1, 3)) == 2**53 + 4096
    assert device.address("x", interface("<u2", (2,)), "bits16", (2,)) == 2**53 + 4096
    with pytest.raises(ValueError, match=r"x is float64 of shape \(2, 3\), wanted float32 of shape \(2, 4\)"):
        device.address("x", interface("<f8", (2, 3)), "float32", (2, 4))
    with pytest.raises(ValueError, match="x is not contiguous"):
        device.address("x", interface("<f4", (2, 3), (24, 8)), "float32", (2, 3))


@pytest.mark.parametrize("changed", ["numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink-cu12"])
def test_another_compiler_finds_no_kernel_of_the_one_before(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = dict.fromkeys(device._TOOLS, "1.0")

    def told(package: str) -> str:
        if package not in versions:
            raise importlib.metadata.PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(importlib.metadata, "version", told)
    before = device._versions.__wrapped__()
    versions[changed] = "1.1"
    newer = device._versions.__wrapped__()
    del versions[changed]
    assert len({before, newer, device._versions.__wrapped__()}) == 3
