"""Dense weights in slabs: the CPU's own bits from views of one piece of memory, resident or streamed with copies as late as may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from strata_recipes.model.dense_slabs import ResidentDense
from strata_recipes.model.kv_cache import SequenceState
from strata_recipes.model.qwen4_exp import Qwen4Exp
from strata_recipes.model.streamed_dense import StreamedDense
from strata_recipes.plan.dense import slabs, streaming_bytes
from tests.model.drive import run_span
from tests.model.hf_model import MemoryPack

CPU, IDS = torch.device("cpu"), np.arange(7, 47)
MAXED = 255  # a byte of it in every float32 is a NaN


class Late:
    """Copies that spoil their place when they are put, and are done when they are waited for."""

    def __init__(self) -> None:
        self.put_bytes: list[int] = []
        self._queue: list[tuple[Tensor, Tensor]] = []

    def put(self, place: Tensor, host: Tensor) -> None:
        place.fill_(MAXED)
        self.put_bytes.append(host.numel())
        self._queue.append((place, host))

    def wait(self) -> None:
        for place, host in self._queue:
            place.copy_(host)
        self._queue = []

    drain = wait


def streamed(pack: MemoryPack) -> tuple[StreamedDense, Late]:
    copies = Late()
    return StreamedDense(pack, CPU, lambda size: torch.empty(size, dtype=torch.uint8), copies), copies


def model(pack: MemoryPack, dense: Any) -> Qwen4Exp:
    return Qwen4Exp(pack, "f32", "fp32", 64, 1, CPU, dense)


def bits(found: Qwen4Exp, pack: MemoryPack, chunk: int = 16) -> list[bytes]:
    state = SequenceState(found.geometry, "fp32", 64)
    spans = [run_span(found, pack, pack, IDS[at : at + chunk], state, at) for at in range(0, IDS.size, chunk)]
    return [span.numpy().tobytes() for span in spans]


@pytest.fixture
def pack(small: tuple[object, MemoryPack]) -> MemoryPack:
    return small[1]


def test_resident_slabs_give_the_cpus_own_bits(pack: MemoryPack) -> None:
    assert bits(model(pack, ResidentDense(pack, CPU)), pack) == bits(model(pack, None), pack)


@pytest.mark.parametrize("chunk", [1, 16, 40])
def test_streamed_slabs_give_resident_ones_bits_before_and_after_they_settle(pack: MemoryPack, chunk: int) -> None:
    wanted = bits(model(pack, ResidentDense(pack, CPU)), pack, chunk)
    dense, copies = streamed(pack)
    found = model(pack, dense)
    layers = pack.index.geometry.num_layers
    for phase in (found.prompt_starts, found.reply_starts, found.reply_starts, found.prompt_starts):
        before = len(copies.put_bytes)
        phase()
        moved = len(copies.put_bytes) - before
        assert bits(found, pack, chunk) == wanted
        assert moved in (0, layers)  # all go up once, to stay
    dense.close()


def test_each_slab_goes_up_once_a_pass_and_two_are_there(pack: MemoryPack) -> None:
    dense, copies = streamed(pack)
    sizes = [slab.num_bytes for slab in slabs(pack.index)]
    memory = {view.untyped_storage().data_ptr(): view.untyped_storage().nbytes() for view in dense.placed.values()}
    assert sum(memory.values()) == streaming_bytes(pack.index) == 2 * max(sizes[:-1]) + sizes[-1]
    for passes in (1, 2):
        for layer in range(len(sizes) - 1):
            for _ in range(3):  # sub-chunks of a super-chunk
                dense.use(layer)
            for name, part in dense.placed.items():
                if name.startswith(f"blk.{layer}."):
                    data, _, _ = pack.dense(name)
                    assert part.numpy().tobytes() == data.tobytes(), name
        assert copies.put_bytes == sizes[:-1] * passes
    dense.close()


def test_layers_in_any_order_have_their_own_weights(pack: MemoryPack) -> None:
    dense, _ = streamed(pack)
    for layer in (3, 0, 2, 2, 1, 3, 0):
        dense.use(layer)
        name = f"blk.{layer}.ffn_gate_inp.weight"
        assert dense.placed[name].numpy().tobytes() == pack.dense(name)[0].tobytes()
    dense.close()


def test_all_of_them_are_in_one_piece_for_the_reply(pack: MemoryPack) -> None:
    dense, _ = streamed(pack)
    assert dense.moves(reply=True) and not dense.moves(reply=False)
    dense.move()
    assert dense.moves(reply=False) and not dense.moves(reply=True)
    own = {name for name in dense.placed if not name.startswith("blk.")}
    pieces = {view.untyped_storage().data_ptr() for name, view in dense.placed.items() if name not in own}
    assert len(pieces) == 1
    for name, part in dense.placed.items():
        assert part.numpy().tobytes() == pack.dense(name)[0].tobytes(), name
    dense.close()
