"""What is taken never passes a budget, from any thread, and a refusal says both numbers and the parts."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata_recipes.errors import DeviceError
from strata_recipes.tiers.ledger import Ledger, Taken


def test_take_and_give_back() -> None:
    ledger = Ledger(1000, 50)
    slots = ledger.take("vram", "expert slots", 600)
    with ledger.take("vram", "keys and values", 400):
        assert ledger.use().vram.used_bytes == 1000
    slots.give_back()
    slots.give_back()  # twice is nothing
    use = ledger.use()
    assert (use.vram.used_bytes, use.vram.peak_bytes, use.vram.limit_bytes) == (0, 1000, 1000)
    assert use.vram.parts == (("expert slots", 0), ("keys and values", 0))
    assert (use.ram.used_bytes, use.ram.peak_bytes) == (0, 0)


def test_a_refusal_takes_nothing_and_names_numbers_and_parts() -> None:
    ledger = Ledger(1000, 5000)
    ledger.take("ram", "expert blobs", 4000)
    ledger.take("ram", "token embedding", 500)
    with pytest.raises(DeviceError) as refused:
        ledger.take("ram", "stage buffers", 501)
    for part in ("ram", "5000", "501", "stage buffers", "expert blobs", "token embedding", "4500", "1 are missing", "experts.ram_budget"):
        assert part in str(refused.value)
    assert ledger.use().ram.used_bytes == 4500
    ledger.take("ram", "stage buffers", 500)  # exactly full


def test_a_wrong_budget_or_size_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        Ledger(1, 1).take("disk", "x", 1)
    with pytest.raises(ValueError, match="-1 bytes"):
        Ledger(1, 1).take("ram", "x", -1)


def test_the_block_gives_back_also_on_an_error() -> None:
    ledger = Ledger(10, 10)
    with pytest.raises(RuntimeError), ledger.take("vram", "x", 10):
        raise RuntimeError
    assert ledger.use().vram.used_bytes == 0


def test_threads_never_pass_the_budget_together() -> None:
    ledger, refused = Ledger(0, 100), []

    def work() -> None:
        for _ in range(300):
            try:
                with ledger.take("ram", "x", 30):
                    pass
            except DeviceError:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    use = ledger.use().ram
    assert use.used_bytes == 0 and use.peak_bytes in (30, 60, 90)


@given(st.lists(st.tuples(st.sampled_from(["take", "give"]), st.integers(0, 60)), max_size=60))
def test_the_sum_of_open_parts_is_what_is_used(steps: list[tuple[str, int]]) -> None:
    ledger = Ledger(0, 100)
    held: list[Taken] = []
    for step, size in steps:
        if step == "take" and sum(taken.num_bytes for taken in held) + size <= 100:
            held.append(ledger.take("ram", f"part {size % 3}", size))
        elif step == "take":
            with pytest.raises(DeviceError):
                ledger.take("ram", "x", size)
        elif held:
            held.pop(size % len(held)).give_back()
        use = ledger.use().ram
        assert use.used_bytes == sum(taken.num_bytes for taken in held) == sum(size for _, size in use.parts) <= use.peak_bytes <= 100
