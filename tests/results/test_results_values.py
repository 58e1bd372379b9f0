"""The fixed keys, the checksums against their definitions, and the machine's facts."""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import subprocess
from dataclasses import replace

import numpy as np
import psutil
import pytest
import xxhash

from strata_recipes.engine.process import process_use
from strata_recipes.results import samples
from strata_recipes.results.identity import Identity, first_logits_md5, tier_checksum, tokens_md5
from strata_recipes.results.machine_facts import git_state, machine_json
from strata_recipes.results.metrics import EmulatedMetrics, Metrics, rate
from strata_recipes.results.status import State, Status, ended

KEYS = """ready_s first_token_s
startup.strategy startup.fill_s startup.copy_s startup.purge_s startup.fill_bytes startup.copy_bytes
startup.drive_bytes startup.cached_bytes startup.extents startup.fallback
startup.interpreter_s startup.device_s startup.dense_s startup.kernels_s startup.pinning_s
memory.lowest_available_bytes memory.peak_rss_bytes memory.rss_before_fill_bytes memory.major_faults memory.pages_in memory.pages_out
memory.vram_peak_bytes memory.vram_budget_bytes memory.ram_peak_bytes memory.ram_budget_bytes
experts.vram_slots experts.ram_blobs experts.file_blobs
prefill.order prefill.tokens prefill.seconds prefill.tokens_per_s prefill.expert_bytes_read prefill.expert_bytes_touched
prefill.expert_bytes_one_pass prefill.expert_bytes_staged prefill.drive_bytes prefill.super_chunks
decode.tokens decode.seconds decode.tokens_per_s decode.vram_hits decode.ram_hits decode.file_hits decode.drafted decode.accepted
decode.swaps decode.swap_s decode.wait_s decode.fallback
predicted.ready_s predicted.prefill_tokens_per_s predicted.decode_tokens_per_s
emulated.facts emulated.by simulated""".split()  # noqa: SIM905


def dotted(part: object, prefix: str = "") -> list[str]:
    if not isinstance(part, dict):
        return [prefix[1:]]
    return [key for name, value in part.items() for key in dotted(value, f"{prefix}.{name}")]


def test_metrics_have_exactly_the_published_keys_and_null_for_what_was_not_taken():
    found = json.loads(Metrics().to_json())
    assert dotted(found) == KEYS
    assert found["ready_s"] is None and found["decode"]["tokens"] is None and found["emulated"] == {"facts": [], "by": []}
    assert list(Metrics().missing()) == KEYS[:-3]


def test_a_nan_is_never_written():
    with pytest.raises(ValueError, match="nan"):
        Metrics(ready_s=float("nan")).to_json()


def test_rate():
    assert (rate(10, 4.0), rate(10, 0.0), rate(10, None)) == (2.5, None, None)


def test_tokens_and_logits_are_hashed_as_little_endian_32_bit_values():
    assert tokens_md5(iter([1, 70_000, 3])) == hashlib.md5(struct.pack("<3i", 1, 70_000, 3)).hexdigest()
    logits = np.array([[1.5, -2.0], [0.25, 9.0]], np.float64)
    assert first_logits_md5(logits[:, 0]) == hashlib.md5(struct.pack("<2f", 1.5, 0.25)).hexdigest()
    assert first_logits_md5(np.array([1.5, 0.25], ">f4")) == first_logits_md5(logits[:, 0])


def test_a_tier_is_hashed_in_order_of_layer_and_expert_however_it_was_filled():
    blobs = [(1, 0, 2**64 - 1), (0, 300, 7), (0, 2, 5)]
    packed = b"".join(struct.pack("<IIQ", *blob) for blob in sorted(blobs))
    assert tier_checksum(blobs) == tier_checksum(reversed(blobs)) == xxhash.xxh3_64_hexdigest(packed)
    swapped = [(1, 0, 7), (0, 300, 2**64 - 1), (0, 2, 5)]
    assert tier_checksum(swapped) != tier_checksum(blobs)
    assert tier_checksum([]) == xxhash.xxh3_64_hexdigest(b"")


def test_identity_keys():
    assert json.loads(Identity(pack_id="ab").to_json()) == {
        "tokens_md5": None, "first_logits_md5": None, "slots_checksum": None, "ram_checksum": None, "pack_id": "ab",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "state"), [(2, State.refused), (3, State.failed), (4, State.failed), (130, State.stopped), (1, State.failed), (0, State.done)]
)
def test_the_exit_code_says_what_became_of_a_run(code, state):
    assert ended(code, "two\n lines") == Status(state, code, "two lines")
    assert json.loads(ended(code, "").to_json()) == {"state": state.value, "exit_code": code, "error": None}


def test_each_fact_says_how_it_is_known(machine):
    found = json.loads(machine_json(machine, ("gpu.vram: 6.00 GiB, here 0", "ram: 64.00 GiB, here 8.00 GiB"), driver="575.1"))
    how = {key: fact["how"] for key, fact in found["facts"].items()}
    assert how["cpu.cores"] == how["drive.direct"] == "probed"
    assert how["gpu.vram"] == how["ram"] == "emulated"
    assert how["gpu.flops"] == "estimated"
    assert how["gpu.pcie"] == how["os"] == "declared"
    assert found["facts"]["available"]["value"] == 50 * 2**30
    assert len(how) == 17
    software = found["software"]
    assert software["driver"] == "575.1" and software["packages"]["numpy"] == np.__version__
    assert socket.gethostname() not in json.dumps(found["software"])


def test_a_pc_without_a_card_has_no_vram(machine):
    found = json.loads(machine_json(replace(machine, gpu=None, probed=frozenset({"gpu.vram"})), ()))
    assert {key: fact for key, fact in found["facts"].items() if key.startswith("gpu")} == {"gpu.vram": {"value": 0, "how": "probed"}}


def git(folder, *words):
    who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_commit_and_dirty_flag_only_of_a_checkout_of_ones_own(tmp_path):
    assert git_state(tmp_path) == {"commit": None, "dirty": None}
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("1")
    assert git_state(tmp_path) == {"commit": None, "dirty": True}
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "one")
    assert git_state(tmp_path) == {"commit": git(tmp_path, "rev-parse", "HEAD"), "dirty": False}
    (tmp_path / "b").write_text("2")
    assert git_state(tmp_path)["dirty"] is True
    installed = tmp_path / "venv"
    installed.mkdir()
    assert git_state(installed) == {"commit": None, "dirty": None}
    assert git_state(tmp_path / "absent") == {"commit": None, "dirty": None}


def test_samples_begin_and_end_the_run():
    with samples.Sampler(lambda: 1234, period_s=3600) as sampler:
        pass
    first, last = sampler.samples
    assert first.available_bytes == last.available_bytes == 1234
    assert 0 <= first.seconds <= last.seconds
    assert last.rss_bytes > 2**20 and sampler.fault is None
    lines = samples.to_csv([samples.Sample(0.25, 5, 6, None), samples.Sample(0.5, 7, 8, 9, 1, 2, 3)]).splitlines()
    assert lines == ["seconds,available_bytes,rss_bytes,drive_bytes,major_faults,pages_in,pages_out", "0.250,5,6,,,,", "0.500,7,8,9,1,2,3"]
    assert last.major_faults is not None and last.pages_in is not None and last.pages_out is not None


def test_a_sampler_that_fails_says_so_and_keeps_what_it_has():
    answers = iter([1, OSError("no meminfo"), 3])

    def available() -> int:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    with samples.Sampler(available, period_s=0.001) as sampler:
        sampler._thread.join()
    assert [sample.available_bytes for sample in sampler.samples] == [1, 3]
    assert sampler.fault == "OSError: no meminfo"


@pytest.mark.skipif(not psutil.LINUX, reason="reads /proc")
def test_drive_bytes_are_what_the_kernel_counts():
    counted = process_use().drive_bytes
    with open("/proc/self/io", encoding="ascii") as file:
        assert counted is None or counted <= int(dict(line.split(": ") for line in file)["read_bytes"])


def test_emulated_is_a_list_in_json():
    assert json.loads(Metrics(emulated=EmulatedMetrics(("ram",))).to_json())["emulated"]["facts"] == ["ram"]
