"""Dense weights that go up from RAM layer by layer while a prompt is read, and all of them for the reply. Knows no schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from strata_recipes.model.dense_slabs import DensePack, fill, side_by_side, views
from strata_recipes.plan.allocator import whole_segments
from strata_recipes.plan.dense import slabs

MakeHost = Callable[[int], Tensor]  # uint8 of so many bytes in RAM, page-locked where there is a card


class Copies(Protocol):
    """Copies in order, beside what is computed."""

    def put(self, place: Tensor, host: Tensor) -> None:
        """Once all that is launched so far is done."""

    def wait(self) -> None:
        """What is launched from now on comes after every copy that was put."""

    def drain(self) -> None:
        """Returns when all copies are done."""


class CardCopies:
    """On a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def put(self, place: Tensor, host: Tensor) -> None:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            place.copy_(host, non_blocking=True)

    def wait(self) -> None:
        torch.cuda.current_stream().wait_stream(self._stream)

    def drain(self) -> None:
        self._stream.synchronize()


class StreamedDense:
    """In a prompt two places hold two neighbouring layers: while one computes, the next layer's weights go up."""

    def __init__(self, pack: DensePack, device: torch.device, make_host: MakeHost, copies: Copies) -> None:
        *self._layers, own = slabs(pack.index)
        self._device, self._copies = device, copies
        self._places: list[Tensor] = []  # by layer, where its bytes are in this phase
        self._settled = False  # all of them in VRAM
        self._at = self._next = -1  # the layer that computes, and the one that was sent after it
        self._host = [make_host(slab.num_bytes) for slab in self._layers]
        for slab, host in zip(self._layers, self._host, strict=True):
            fill(pack, slab, host)
        memory = torch.empty(own.num_bytes, dtype=torch.uint8, device=device)
        fill(pack, own, memory)
        self._own = views(own, memory)
        self._streams()

    @property
    def placed(self) -> Mapping[str, Tensor]:
        found = dict(self._own)
        for slab, place in zip(self._layers, self._places, strict=True):
            found |= views(slab, place[: slab.num_bytes])
        return found

    def moves(self, reply: bool) -> bool:
        return self._settled is not reply

    def move(self) -> None:
        self._copies.drain()
        self._places = []  # both phases' do not fit at once
        if self._device.type == "cuda":
            torch.cuda.empty_cache()  # in pieces of other sizes it would be of no use to what comes
        if self._settled:
            self._streams()
        else:
            self._settle()

    def use(self, layer: int) -> None:
        if self._settled or layer == self._at:
            return
        if layer != self._next:
            self._put(layer)
        self._copies.wait()
        self._at, self._next = layer, layer + 1
        if self._next < len(self._layers):
            self._put(self._next)

    def close(self) -> None:
        """No copy is under way from the host's memory after this."""
        self._copies.drain()
        self._host = []

    def _streams(self) -> None:
        largest = max(slab.num_bytes for slab in self._layers)
        two = self._piece(2 * largest).view(2, largest)
        self._places, self._settled = [two[layer % 2] for layer in range(len(self._layers))], False
        self._at = self._next = -1

    def _settle(self) -> None:
        memory = self._piece(sum(slab.num_bytes for slab in self._layers))
        self._places, self._settled = side_by_side(self._layers, memory), True
        for place, host in zip(self._places, self._host, strict=True):
            self._copies.put(place, host)
        self._copies.drain()

    def _piece(self, num_bytes: int) -> Tensor:
        """Memory that the card gets back whole when it is let go, where it lies in a segment of its own, of 10 MiB and more."""
        return torch.empty(whole_segments(num_bytes), dtype=torch.uint8, device=self._device)[:num_bytes]

    def _put(self, layer: int) -> None:
        self._copies.put(self._places[layer][: self._layers[layer].num_bytes], self._host[layer])
