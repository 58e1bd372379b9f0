"""A stand-in for pynvml: cards in PCI order, and errors where a test wants them."""

from __future__ import annotations

from types import SimpleNamespace

from strata_recipes.units import GiB


class NvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeNvml:
    NVMLError = NvmlError
    NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIBRARY_NOT_FOUND, NVML_CLOCK_MEM = 9, 12, 2

    def __init__(self, *cards: tuple[str, str, int], init_error: int = 0, count_error: int = 0) -> None:
        """A card is (UUID, name, free GiB)."""
        self.cards, self.init_error, self.count_error, self.open = cards, init_error, count_error, 0

    def nvmlInit(self) -> None:
        if self.init_error:
            raise NvmlError(self.init_error)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        if self.count_error:
            raise NvmlError(self.count_error)
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return self.cards[handle][0]

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return self.cards[handle][1].encode()  # older bindings give bytes

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=24 * GiB, free=self.cards[handle][2] * GiB)

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 8, 9

    def nvmlDeviceGetMaxClockInfo(self, handle: int, clock: int) -> int:
        assert clock == self.NVML_CLOCK_MEM
        return 10501

    def nvmlDeviceGetMemoryBusWidth(self, handle: int) -> int:
        return 384

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:
        return 16

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:
        return 4
