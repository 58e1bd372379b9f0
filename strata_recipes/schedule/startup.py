"""The start-up copies as plain data: which blob goes from which file range to which place. Knows no file and no memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strata_recipes.pack.index import ALIGNMENT, PackIndex


@dataclass(frozen=True)
class Copy:
    """One blob: from experts.bin to place `index` of its tier."""

    layer: int
    expert: int
    index: int
    offset: int
    num_bytes: int


@dataclass(frozen=True)
class StartupSchedule:
    fill: tuple[Copy, ...]  # into VRAM slots, hottest first
    copy: tuple[Copy, ...]  # into RAM, in file order


def default_order(pack: PackIndex) -> list[tuple[int, int]]:
    """(layer, expert) pairs without a profile: expert id, then layer, so that every layer gets its share."""
    g = pack.geometry
    return [(layer, expert) for expert in range(g.num_experts) for layer in range(g.num_layers)]


@dataclass(frozen=True)
class Extent:
    """One merged read of the file, and the copies that lie in it, in file order."""

    offset: int
    num_bytes: int
    copies: tuple[Copy, ...]


def extents(copies: Sequence[Copy], merge_bytes: int) -> list[Extent]:
    """The copies' ranges in file order at stored stride, touching ones merged up to `merge_bytes`: no byte is in two extents."""
    runs: list[list[Copy]] = []
    first = end = 0  # of the last run
    for copy in sorted(copies, key=lambda copy: copy.offset):
        stop = -(-(copy.offset + copy.num_bytes) // ALIGNMENT) * ALIGNMENT
        if runs and end == copy.offset and stop - first <= merge_bytes:
            runs[-1].append(copy)
        else:
            runs.append([copy])
            first = copy.offset
        end = stop
    return [_extent(run) for run in runs]


def _extent(run: Sequence[Copy]) -> Extent:
    stop = -(-(run[-1].offset + run[-1].num_bytes) // ALIGNMENT) * ALIGNMENT
    return Extent(run[0].offset, stop - run[0].offset, tuple(run))


@dataclass(frozen=True)
class Batch:
    """Copies that are read together: their extents, in file order, laid one behind the other in one stage buffer."""

    extents: tuple[Extent, ...]

    @property
    def num_bytes(self) -> int:
        """Stage bytes that it takes."""
        return sum(extent.num_bytes for extent in self.extents)

    @property
    def copies(self) -> tuple[Copy, ...]:
        return tuple(copy for extent in self.extents for copy in extent.copies)


def batches(copies: Sequence[Copy], batch_blobs: int, merge_bytes: int) -> list[Batch]:
    """The copies in their order, `batch_blobs` at a time; inside a batch as merged extents in file order."""
    if batch_blobs < 1:
        raise ValueError(f"batches of {batch_blobs} blobs never end")
    return [Batch(tuple(extents(copies[i : i + batch_blobs], merge_bytes))) for i in range(0, len(copies), batch_blobs)]


def layers(copies: Sequence[Copy], merge_bytes: int) -> list[Batch]:
    """The copies layer by layer, each layer's as merged extents in file order: how a mapping is read."""
    found: dict[int, list[Copy]] = {}
    for copy in copies:
        found.setdefault(copy.layer, []).append(copy)
    return [Batch(tuple(extents(found[layer], merge_bytes))) for layer in sorted(found)]


def startup_schedule(
    pack: PackIndex, order: Sequence[tuple[int, int]], vram_slots: int, ram_blobs: int, ram_start: int | None = None
) -> StartupSchedule:
    """The first `vram_slots` pairs of the order fill VRAM, the next `ram_blobs` are copied to RAM; both are read in file order.

    `ram_start`: where in the order RAM begins; 0 where it holds the slots' blobs too (full_arena).
    """

    def copies(pairs: Sequence[tuple[int, int]]) -> tuple[Copy, ...]:
        return tuple(Copy(la, ex, i, pack.offset(la, ex), pack.layers[la].blob_bytes) for i, (la, ex) in enumerate(pairs))

    def in_file_order(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """None is used before all are there, so heat decides which, not when: neighbours are then read together."""
        return sorted(pairs, key=lambda pair: (pack.layers[pair[0]].offset, pair[1]))

    ram = order[vram_slots if ram_start is None else ram_start : vram_slots + ram_blobs]
    return StartupSchedule(copies(in_file_order(order[:vram_slots])), copies(in_file_order(ram)))
