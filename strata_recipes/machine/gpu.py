"""The card that CUDA would take, by NVML: matched by UUID, with CUDA_VISIBLE_DEVICES honoured. Makes no CUDA context."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from strata_recipes.errors import DeviceError

T = TypeVar("T")
# dense fp16 operations/s with fp32 accumulation: 790 measured, the others the makers'
KNOWN_FLOPS = {
    "H200": 790e12,
    "RTX 5090": 210e12,
    "RTX 4090": 165e12,
    "RTX 5070": 62e12,
    "RTX 3060 Laptop": 20e12,
}
ASSUMED_FLOPS = 10e12  # an unknown card: about the smallest that runs such models at all
LANE_RATE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}  # bytes/s, by PCIe generation
PCIE_REACHED = 0.87  # 54.7 GB/s measured of 63.0 at gen5 x16
ASSUMED_PCIE = 6e9


@dataclass(frozen=True)
class Card:
    """Facts of one card; names in `assumed` are defaults, not findings."""

    uuid: str
    name: str
    capability: str
    vram_bytes: int
    free_bytes: int
    bandwidth: float
    flops: float
    pcie: float
    assumed: tuple[str, ...]


def find_card(nvml: Any = None, environment: Mapping[str, str] | None = None, first_uuid: Callable[[], str] | None = None) -> Card | None:
    """The card CUDA calls device 0, or None where there is none; DeviceError where a driver is there and does not work.

    `nvml` is the pynvml module, or a stand-in; `first_uuid` asks the CUDA driver when cards differ and their order matters.
    """
    environment = os.environ if environment is None else environment
    return _asked(nvml, lambda module: _chosen(module, environment, first_uuid or cuda_first_uuid), None)


def visible_uuids(nvml: Any = None, environment: Mapping[str, str] | None = None) -> list[str]:
    """UUIDs of the cards that CUDA may use under this environment; none without a driver."""
    environment = os.environ if environment is None else environment
    return _asked(nvml, lambda module: _visible(module, environment), [])


def _asked(nvml: Any, ask: Callable[[Any], T], without: T) -> T:
    """The answer of an initialised NVML, or `without` where there is no driver."""
    module = _pynvml() if nvml is None else nvml
    if module is None:
        return without
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        if getattr(error, "value", None) in (module.NVML_ERROR_LIBRARY_NOT_FOUND, module.NVML_ERROR_DRIVER_NOT_LOADED):
            return without
        raise DeviceError(f"the NVIDIA driver does not answer ({error}): repair it, or state hardware.gpu.vram=0 to go without") from error
    try:
        return ask(module)
    except module.NVMLError as error:
        raise DeviceError(f"the NVIDIA driver fails on a card ({error}): repair it, or state hardware.gpu.vram=0 to go without") from error
    finally:
        module.nvmlShutdown()


def cuda_first_uuid() -> str:
    """UUID of CUDA's device 0 under this environment, from the driver library; DeviceError if it does not say."""
    library = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(library)
    except OSError as error:
        raise DeviceError(f"{library} cannot be loaded ({error}), so it is not known which card CUDA takes first") from error
    device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    for name, arguments in (("cuInit", (0,)), ("cuDeviceGet", (ctypes.byref(device), 0)), ("cuDeviceGetUuid", (uuid, device))):
        if code := getattr(driver, name)(*arguments):
            raise DeviceError(f"{name} fails with CUDA error {code}, so it is not known which card CUDA takes first")
    text = bytes(uuid).hex()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _pynvml() -> Any:
    try:
        import pynvml
    except ImportError as error:
        if os.path.exists("/proc/driver/nvidia/version"):
            raise DeviceError(
                "an NVIDIA driver is here but not the package nvidia-ml-py: install it, or state hardware.gpu.vram=0"
            ) from error
        return None
    return pynvml


def _visible(nvml: Any, environment: Mapping[str, str]) -> list[str]:
    uuids = [_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(i))) for i in range(nvml.nvmlDeviceGetCount())]
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not uuids:
        return uuids
    entries = [entry.strip() for entry in visible.split(",")]
    return [_uuid_of(entry, uuids, visible) for entry in entries if entry not in ("", "-1")]


def _chosen(nvml: Any, environment: Mapping[str, str], first_uuid: Callable[[], str]) -> Card | None:
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    by_uuid = {_text(nvml.nvmlDeviceGetUUID(handle)): handle for handle in handles}
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    entries = None if visible is None else [entry.strip() for entry in visible.split(",")]
    if not handles or (entries is not None and entries[0] in ("", "-1")):
        return None
    if entries is not None:
        uuids = [_uuid_of(entry, list(by_uuid), visible) for entry in entries if entry not in ("", "-1")]
        if len(set(uuids)) < len(uuids):
            raise DeviceError(f"CUDA_VISIBLE_DEVICES={visible} names a card twice: name each once")
    alike = len({_text(nvml.nvmlDeviceGetName(handle)) for handle in handles}) == 1
    # NVML counts by PCI bus, CUDA the fastest first unless told otherwise: with unlike cards only the driver knows which index is which
    by_index = entries is None or entries[0].isdigit()
    if by_index and not alike and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        first = first_uuid()
    else:
        first = next(iter(by_uuid)) if entries is None else uuids[0]
    if first not in by_uuid:
        raise DeviceError(
            f"CUDA takes the card {first}, which NVML does not list ({', '.join(by_uuid)}): set CUDA_VISIBLE_DEVICES to one of those"
        )
    return _card(nvml, by_uuid[first], first)


def _uuid_of(entry: str, uuids: list[str], visible: str | None) -> str:
    if entry.isdigit() and int(entry) < len(uuids):
        return uuids[int(entry)]
    found = [uuid for uuid in uuids if entry and uuid.startswith(entry)]  # CUDA takes the beginning of a UUID too
    if len(found) == 1:
        return found[0]
    raise DeviceError(
        f"CUDA_VISIBLE_DEVICES={visible} names {entry!r}, this PC has {len(uuids)} cards: 0 to {len(uuids) - 1}, or {', '.join(uuids)}"
    )


def _card(nvml: Any, handle: Any, uuid: str) -> Card:
    name, memory = _text(nvml.nvmlDeviceGetName(handle)), nvml.nvmlDeviceGetMemoryInfo(handle)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    clock, width = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM), nvml.nvmlDeviceGetMemoryBusWidth(handle)
    bandwidth = clock * 1e6 * 2 * width / 8  # two transfers a clock
    known = [flops for part, flops in KNOWN_FLOPS.items() if part in name]
    lanes = nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)
    lane = LANE_RATE.get(nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle), 0.0)
    pcie = lanes * lane * PCIE_REACHED or ASSUMED_PCIE
    assumed = ("flops", "pcie") if not known else ("pcie",)
    return Card(
        uuid, name, f"{major}.{minor}", int(memory.total), int(memory.free), bandwidth, known[0] if known else ASSUMED_FLOPS, pcie, assumed
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
