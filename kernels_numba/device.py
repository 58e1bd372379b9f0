"""The one place that imports numba.cuda: building, launching, argument checks, and what the GPU is.

Importing this needs no driver and compiles nothing. Kernels take every array as a 64-bit address and every scalar as a numpy
type, so a launch costs one parameter an argument; `address` is where dtype, shape, contiguity and device are checked.
"""

from __future__ import annotations

import functools
import importlib.metadata
import threading
from collections.abc import Callable
from ctypes import c_float, c_int32, c_int64
from dataclasses import dataclass
from typing import Any

import numba.cuda
import numpy as np
from numba import types
from numba.core import config
from numba.cuda.core import config as cuda_config

from kernels_numba.cubins import Cubin, folder, keep, kept
from kernels_numba.fingerprint import fingerprint

cuda_config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # a token's launches are small, and known to be
cuda: Any = numba.cuda
SIMULATED = bool(config.ENABLE_CUDASIM)  # type: ignore[attr-defined]
WIDE = None if SIMULATED else 16  # alignment of shared arrays that are loaded 16 bytes at a time; the simulator takes none
MAX_GRID = 2**31 - 1
_SCALARS = {"i32": types.int32, "i64": types.int64, "f32": types.float32}
_NUMPY = {"i32": np.int32, "i64": np.int64, "f32": np.float32}
_CTYPES = {"i32": c_int32, "i64": c_int64, "f32": c_float}
_TOOLS = (  # what makes machine code, by its package; those of CUDA 12 have names of their own
    "numba", "numba-cuda", "llvmlite", "cuda-core", "cuda-bindings", "nvidia-nvvm", "nvidia-cuda-nvrtc", "nvidia-nvjitlink",
    "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvrtc-cu12", "nvidia-nvjitlink-cu12",
)  # fmt: skip
_THIS_THREAD = threading.local()


class DeviceMismatch(RuntimeError):
    """The GPU, its driver or its toolkit cannot run these kernels, or ran one wrongly."""


def inline(function: Callable[..., Any]) -> Any:
    """A device function that always inlines; the plain function in the simulator."""
    return function if SIMULATED else cuda.jit(device=True, forceinline=True)(function)


@dataclass(frozen=True)
class Kernel:
    """A kernel's Python body with its parameters, such as "i64 i64 i32", and its threads a block. Compiles on first launch."""

    body: Callable[..., None]
    parameters: str
    threads: int
    blocks_a_multiprocessor: int = 1  # resident blocks that registers must leave room for

    @property
    def signature(self) -> Any:
        return types.void(*(_SCALARS[name] for name in self.parameters.split()))

    @property
    def bounds(self) -> tuple[int, int]:
        """numba's launch_bounds."""
        return self.threads, self.blocks_a_multiprocessor

    def load(self) -> None:
        """What a first launch does before it runs: compiled, unless it is kept, and in the GPU's memory. Nothing in the simulator."""
        if not SIMULATED:
            _attach()
            _loaded(self)

    def launch(self, blocks: int, stream: int, *arguments: Any) -> None:
        """Run on `blocks` blocks in the stream with that handle (0: the default one). No blocks: nothing is launched."""
        if blocks == 0:
            return
        if not 0 < blocks <= MAX_GRID:
            raise ValueError(f"{self.body.__name__} would need {blocks} blocks, the grid holds {MAX_GRID}: split the rows")
        names = self.parameters.split()
        typed = [_NUMPY[name](value) for name, value in zip(names, arguments, strict=True)]
        if SIMULATED:
            _simulated(self)[blocks, self.threads](*typed)
        else:
            _attach()
            _launched(self, blocks, stream, typed, tuple(_CTYPES[name] for name in names))


@functools.cache
def _simulated(kernel: Kernel) -> Any:
    return cuda.jit(kernel.body)


def _launched(kernel: Kernel, blocks: int, stream: int, values: list[Any], kinds: tuple[Any, ...]) -> None:
    """Through the driver itself: numba launches what it compiled in this process, not what was loaded."""
    parameters = tuple(value.item() for value in values), kinds
    _answer(_driver().cuLaunchKernel(_loaded(kernel), blocks, 1, 1, kernel.threads, 1, 1, 0, stream, parameters, 0))


@functools.cache
def _loaded(kernel: Kernel) -> Any:
    """Its function in the GPU's memory: what an earlier start compiled, or compiled now and kept."""
    key = _key(kernel)
    found = kept(key, folder())
    if found is None:
        found = _compiled(kernel)
        keep(key, found, folder())
    driver = _driver()
    library = _answer(driver.cuLibraryLoadData(found.code, [], [], 0, [], [], 0))
    return _answer(driver.cuKernelGetFunction(_answer(driver.cuLibraryGetKernel(library, found.entry.encode()))))


def _key(kernel: Kernel) -> str:
    """Of all that its machine code hangs on: GPU, compilers, how they are called, and what the body reaches."""
    return fingerprint(check_device(), _versions(), _jitted, kernel.signature.args, kernel.bounds, kernel)


def _jitted(kernel: Kernel) -> Any:
    return cuda.jit(kernel.signature, launch_bounds=kernel.bounds)(kernel.body)


def _compiled(kernel: Kernel) -> Cubin:
    (made,) = _jitted(kernel).overloads.values()
    return Cubin(made.entry_name, bytes(made.library.get_cubin().code))


def _answer(returned: tuple[Any, ...]) -> Any:
    """A driver call's result, or DeviceMismatch with its error's name."""
    error, *result = returned
    if error:
        name = _driver().cuGetErrorName(error)[1]
        raise DeviceMismatch(f"the GPU's driver answers {name.decode() if name else error} ({check_device()})")
    return result[0] if result else None


@functools.cache
def _driver() -> Any:
    from cuda.bindings import driver  # comes with numba-cuda; not needed where there is no GPU

    return driver


def _attach() -> None:
    """Makes the GPU's context, which torch uses too, this thread's own: a thread that never used it has none."""
    if not getattr(_THIS_THREAD, "attached", False):
        check_device()
        cuda.current_context()
        _THIS_THREAD.attached = True


@functools.cache
def _versions() -> tuple[str | None, ...]:
    return tuple(_version(name) for name in _TOOLS)


def _version(package: str) -> str | None:
    """None where it is not installed: the toolkit is then the system's, whose version check_device tells."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def check_device() -> str:
    """One line on driver, toolkit and capability; DeviceMismatch where there is no GPU or the GPU is older than the kernels."""
    try:
        capability = cuda.get_current_device().compute_capability
        line = f"compute capability {capability[0]}.{capability[1]}, driver for CUDA {_dotted(cuda.cudadrv.driver.driver.get_version())}"
    except cuda.cudadrv.error.CudaSupportError as failure:
        raise DeviceMismatch(f"no usable NVIDIA driver: {' '.join(str(failure).split()).rstrip(' :')}") from failure
    line += f", toolkit {_dotted(cuda.runtime.get_version())}"
    if tuple(capability) < (8, 0):
        raise DeviceMismatch(f"{line}: the kernels need compute capability 8.0 or newer")
    return line


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(str(part) for part in version)


def address(name: str, array: Any, dtype: str, shape: tuple[int, ...]) -> int:
    """Where a device array's data lies, checked. torch tensors, numba device arrays, and numpy arrays in the simulator.

    `dtype` is a numpy name; bf16 and f16 are accepted as "bits16", whatever 2-byte type holds them. -1 in `shape` is any size.
    """
    found, got_shape, contiguous, data = _describe(array)
    if not contiguous:
        raise ValueError(f"{name} is not contiguous")
    wrong_type = found not in ("int16", "uint16", "float16", "bfloat16") if dtype == "bits16" else found != dtype
    fits = len(shape) == len(got_shape) and all(w in (-1, g) for w, g in zip(shape, got_shape, strict=True))
    if wrong_type or not fits:
        raise ValueError(f"{name} is {found} of shape {got_shape}, wanted {dtype} of shape {shape}")
    return data


def locked_address(name: str, array: Any, dtype: str, shape: tuple[int, ...]) -> int:
    """The same of page-locked host memory, which kernels read and write in place: a CPU tensor, or a numpy array that the caller locked."""
    if hasattr(array, "data_ptr") and not SIMULATED and not array.is_pinned():
        raise ValueError(f"{name} is not page-locked")
    host = array if isinstance(array, np.ndarray) else array.numpy()
    if not host.flags.c_contiguous or host.dtype.name != dtype or host.shape != shape:
        raise ValueError(f"{name} is {host.dtype.name} of shape {host.shape}, wanted {dtype} of shape {shape}, contiguous")
    return int(host.ctypes.data)


def _describe(array: Any) -> tuple[str, tuple[int, ...], bool, int]:
    if hasattr(array, "data_ptr"):  # torch, without importing it
        if array.device.type != "cuda" and not SIMULATED:
            raise ValueError(f"a tensor on {array.device} where a CUDA tensor is wanted")
        return str(array.dtype).removeprefix("torch."), tuple(array.shape), array.is_contiguous(), int(array.data_ptr())
    if isinstance(array, np.ndarray) and SIMULATED:
        return array.dtype.name, array.shape, array.flags.c_contiguous, int(array.ctypes.data)
    view = getattr(array, "__cuda_array_interface__", None)
    if view is None:
        raise ValueError(f"{type(array).__name__} is not a device array")
    return np.dtype(view["typestr"]).name, tuple(view["shape"]), view.get("strides") is None or 0 in view["shape"], int(view["data"][0])


def to_device(array: np.ndarray) -> Any:
    """A copy on the device (in the simulator: in host memory), for tables and tests; the engine has its own copies."""
    return np.array(array, order="C") if SIMULATED else cuda.to_device(np.ascontiguousarray(array))


def to_host(array: Any) -> np.ndarray:
    """Back from `to_device`, after everything on the default stream."""
    host: np.ndarray = array if SIMULATED else array.copy_to_host()
    return host
