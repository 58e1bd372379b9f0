"""Wrong input from a user: one last line that names it, the exit code of its kind, and no results folder of a run that never began."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import DATA, ROOT, Done, Strata
from tests.pack.checkpoint import INDEX, edit_json, edit_shard, make_checkpoint, shards

TINY = DATA / "tiny-q2_0.gguf"
GGUF = (
    "model=gguf",
    f"model.source={TINY}",
    f"workload.token_ids_file={DATA / 'oracle' / 'tiny-q2_0.short.npz'}",
    "decode.max_new_tokens=1",
)
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 5874816\n"


def refused(done: Done, code: int, *words: str) -> None:
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    missing = [word for word in words if word not in done.last_line]
    assert not missing, f"{missing} not in: {done.last_line}"
    assert not done.folders, "a run that never began leaves no folder"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("experts.slot=3",), ("experts.slot", "experts.slots")),
        (("+experts.foo.bar=1",), ("experts.foo",)),
        (("hardware=rtx3060",), ("rtx3060_6gb",)),
        (("hardware.gpu.vram=-1GiB",), ("hardware.gpu.vram", "negative")),
        (("prefill.chunk=0",), ("prefill.chunk", "0")),
        (("model=null",), ("model",)),
        (("workload.text=''",), ("empty",)),
        (("workload.tokens=9000",), ("9,000", "8,192")),
        (("workload=synthetic", "workload.tokens=100", "kv.max_context=64"), ("100", "64")),
        (("hardware=rtx3060_6gb", "hardware.gpu.vram=64MiB", "model.scale_of=null", "hardware.gpu.reserve=63MiB"), ("MiB", "vram")),
        (("model=qwen38_flash_next_q2_0", "hardware=h200"), ("mode=plan",)),
        (("prefill=chunked", "prefill.super_chunk=whole"), ("prefill.super_chunk", "chunked")),
    ],
)
def test_config_and_plan(inside: Strata, words: tuple[str, ...], expected: tuple[str, ...]) -> None:
    refused(inside(*words), 2, *expected)


def test_every_fault_at_once(inside: Strata) -> None:
    refused(inside("experts.slot=3", "hardware.ram=12 quarts", "kv=fp8"), 2, "experts.slot", "quarts", "fp8")


def _cut(path: Path, num_bytes: int) -> None:
    with path.open("r+b") as file:
        file.truncate(num_bytes)


@pytest.mark.parametrize("change", [-1, -1024, None, 4096])
def test_experts_bin_of_another_size(inside: Strata, tmp_path: Path, change: int | None) -> None:
    pack = tmp_path / "pack"
    assert inside("mode=pack", *GGUF[:2], f"model.pack={pack}").code == 0
    size = (pack / "experts.bin").stat().st_size
    found = 0 if change is None else size + change
    _cut(pack / "experts.bin", found)
    refused(inside(*GGUF, f"model.pack={pack}"), 3, "experts.bin", f"{found:,}", f"{size:,}")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (LFS, ("LFS",)),
        (b"<!DOCTYPE html><html><body>403</body></html>", ("web page",)),
        (b"", ("empty",)),
        (TINY.read_bytes()[:-4096], (f"{TINY.stat().st_size - 4096:,}",)),
    ],
)
def test_files_that_are_not_weights(inside: Strata, tmp_path: Path, content: bytes, words: tuple[str, ...]) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    refused(inside("model=gguf", f"model.source={path}"), 3, "model.gguf", *words)


def test_no_file_and_a_folder_for_a_file(inside: Strata, tmp_path: Path) -> None:
    refused(inside("model=gguf", f"model.source={tmp_path / 'none.gguf'}"), 3, "none.gguf")
    refused(inside("model=gguf", f"model.source={tmp_path}"), 3, tmp_path.name, "folder")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


def _drop_shard(folder: Path) -> tuple[str, ...]:
    path = shards(folder)[1]
    path.unlink()
    return (path.name,)


def _drop_tensor(folder: Path) -> tuple[str, ...]:
    dropped: list[str] = []
    edit_shard(shards(folder)[0], lambda tensors: (dropped.append(min(tensors)), tensors.pop(min(tensors))))
    return (dropped[0], shards(folder)[0].name)


def _pointer(folder: Path) -> tuple[str, ...]:
    shards(folder)[0].write_bytes(LFS)
    return (shards(folder)[0].name, "LFS")


def _unknown_in_index(folder: Path) -> tuple[str, ...]:
    edit_json(folder / INDEX, lambda index: index["weight_map"].update({"model.layers.0.foo.bias": shards(folder)[0].name}))
    return ("foo.bias",)


@pytest.mark.parametrize("spoil", [_drop_shard, _drop_tensor, _pointer, _unknown_in_index])
def test_a_spoilt_checkpoint(inside: Strata, tmp_path: Path, whole: Path, spoil: Callable[[Path], tuple[str, ...]]) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "checkpoint"))
    words = spoil(folder)
    refused(inside("mode=pack", "model=hf", f"model.source={folder}"), 3, *words)


def test_a_width_that_its_block_does_not_divide(inside: Strata) -> None:
    done = inside("model=synthetic", "model.geometry.expert_width=40", "mode=plan")
    refused(done, 2, "40", "Q2_0")


@pytest.fixture
def small_drive(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_no_space_for_the_pack(inside: Strata, small_drive: Path) -> None:
    refused(inside("mode=pack", *GGUF[:2], f"model.pack={small_drive / 'pack'}"), 3, "pack", "short")
    assert not list(small_drive.rglob("pack.json"))


def test_a_read_only_target(inside: Strata, small_drive: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_drive)], check=True)
    refused(inside("mode=pack", *GGUF[:2], f"model.pack={small_drive / 'pack'}"), 3, "pack", "errno 30")


def test_a_results_root_that_cannot_be_written(strata: Strata, small_drive: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_drive)], check=True)
    done = strata("mode=plan", root=str(small_drive / "results"))
    refused(done, 3, "results.root", "errno 30")


def test_the_last_line_on_a_real_terminal_stream_is_one_sentence(strata: Strata) -> None:
    done = strata("experts.slot=3")
    assert done.code == 2
    assert done.err.strip().startswith("strata: ")
    assert done.err.strip().count("\n") == 0
    assert str(ROOT) not in done.err
