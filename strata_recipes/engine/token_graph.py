"""A token as captured graphs: one where every expert has an address, else one a layer half, with the host between to fetch misses.

Captured once for a sequence's buffers and replayed; a first token runs uncaptured, so that every kernel is compiled by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import torch
from torch import Tensor

from strata_recipes.engine.missed import Missed
from strata_recipes.engine.token_inputs import TokenInputs
from strata_recipes.model.gathered import Gathered
from strata_recipes.model.token_layers import TokenLayers

Part = Callable[[int], None]  # queues its work on the stream of that handle, which is torch's current one


@contextmanager
def beside(stream: torch.cuda.Stream, side: torch.cuda.Stream) -> Iterator[None]:
    """The work inside goes to `side`, after what `stream` has so far."""
    side.wait_stream(stream)
    with torch.cuda.stream(side):
        yield


class Captured:
    """Work that is queued kernel by kernel until it is captured, and as one graph from then on. It is told the work each time: holding
    it, it would hold what holds it, and their memory would not be given back before garbage is collected."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._graph: torch.cuda.CUDAGraph | None = None
        self._ran = False

    def run(self, work: Part) -> None:
        with torch.cuda.stream(self._stream):
            if self._graph is not None:
                self._graph.replay()
            else:  # again, where a pass failed before its end
                work(self._stream.cuda_stream)
                self._ran = True

    def capture(self, work: Part) -> None:
        """Records the work, once it has run; nothing runs. Other threads may go on using the card."""
        if self._graph is None and self._ran:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(self._stream):  # not torch.cuda.graph, which waits and collects garbage, for each of 145 graphs
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    work(self._stream.cuda_stream)
                except BaseException:
                    with suppress(Exception):  # that the capture is broken must not hide what broke it
                        graph.capture_end()
                    raise
                graph.capture_end()
            self._graph = graph


class RoutedExperts:
    """The products of a layer's chosen experts: where they are, or from room on the card to which page-locked ones are gathered first,
    the down halves while the gate and up halves are multiplied."""

    def __init__(self, layers: TokenLayers, gathered: Gathered | None, stream: torch.cuda.Stream) -> None:
        self._layers, self._gathered = layers, gathered
        self._stream, self._bus = stream, torch.cuda.Stream(stream.device)

    def run(self, layer: int, addresses: Tensor, chosen: Tensor | None, stream: int) -> None:
        """`chosen`: the ids at `addresses`; None where no one of them has a slot."""
        layers, gathered = self._layers, self._gathered
        if gathered is None:
            layers.experts(layer, addresses, stream)
            return
        gathered.inputs(layer, addresses, chosen, stream)
        with beside(self._stream, self._bus):
            gathered.outputs(layer, addresses, chosen, self._bus.cuda_stream)
        layers.expert_inputs(layer, gathered.addresses, stream)
        self._stream.wait_stream(self._bus)
        layers.expert_outputs(layer, gathered.addresses, stream)


class WholeToken:
    """Every expert has an address: all layers are one graph."""

    def __init__(
        self, layers: TokenLayers, gathered: Gathered | None, inputs: TokenInputs, num_layers: int, stream: torch.cuda.Stream
    ) -> None:
        self._layers, self._inputs, self._num_layers = layers, inputs, num_layers
        self._routed = RoutedExperts(layers, gathered, stream)
        self._stream, self._side = stream, torch.cuda.Stream(stream.device)
        self._graph = Captured(stream)

    def run(self) -> None:
        """Queues one pass over the layers."""
        self._graph.run(self._all)

    def capture(self) -> None:
        self._graph.capture(self._all)

    def _all(self, stream: int) -> None:
        layers = self._layers
        self._inputs.send()
        layers.begin()
        for layer in range(self._num_layers):
            layers.route(layer, stream)
            with beside(self._stream, self._side):
                layers.shared(layer, self._side.cuda_stream)
            self._routed.run(layer, layers.buffers["addresses"], layers.buffers["routed"][layer].view(-1), stream)
            self._stream.wait_stream(self._side)
            layers.combine(layer, stream)
        layers.logits(stream)
        for name in ("logits", "nans", "routed"):
            self._inputs.bring(name)


class HalvesOfToken:
    """Some experts have no address: the host looks at each layer's choice, and fetches what is missing while the rest is computed."""

    def __init__(
        self, layers: TokenLayers, gathered: Gathered | None, inputs: TokenInputs, missed: Missed, num_layers: int,
        stream: torch.cuda.Stream,
    ) -> None:  # fmt: skip
        self._layers, self._inputs, self._missed, self._stream = layers, inputs, missed, stream
        self._routed = RoutedExperts(layers, gathered, stream)
        self._chosen = torch.cuda.Event()
        self._route, self._held, self._fetched = ([Captured(stream) for _ in range(num_layers)] for _ in range(3))
        self._end = Captured(stream)

    def run(self) -> None:
        """One pass over the layers; all but the last of it is done when this returns."""
        for layer, (route, held, fetched) in enumerate(zip(self._route, self._held, self._fetched, strict=True)):
            route.run(partial(self._routing, layer))
            self._chosen.record(self._stream)
            held.run(partial(self._computing, layer))
            self._chosen.synchronize()
            if self._missed.fetch(layer, self._inputs.routed[layer].reshape(-1)):
                fetched.run(partial(self._catching_up, layer))
        self._end.run(self._ending)

    def capture(self) -> None:
        for layer, (route, held, fetched) in enumerate(zip(self._route, self._held, self._fetched, strict=True)):
            route.capture(partial(self._routing, layer))
            held.capture(partial(self._computing, layer))
            fetched.capture(partial(self._catching_up, layer))
        self._end.capture(self._ending)

    def _routing(self, layer: int, stream: int) -> None:
        layers = self._layers
        if layer == 0:
            self._inputs.send()
            layers.begin()
        else:
            layers.combine(layer - 1, stream)
        layers.route(layer, stream)
        self._inputs.bring("routed", layer)

    def _computing(self, layer: int, stream: int) -> None:
        self._layers.shared(layer, stream)
        buffers = self._layers.buffers
        self._routed.run(layer, buffers["addresses"], buffers["routed"][layer].view(-1), stream)

    def _catching_up(self, layer: int, stream: int) -> None:
        self._missed.send()
        self._routed.run(layer, self._missed.addresses, None, stream)

    def _ending(self, stream: int) -> None:
        self._layers.combine(len(self._route) - 1, stream)
        self._layers.logits(stream)
        self._inputs.bring("logits")
        self._inputs.bring("nans")
