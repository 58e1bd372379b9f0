"""Building packs: what is written, and that nothing half written ever counts, whatever happens to the packer."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import xxhash
from safetensors import safe_open

from strata_recipes.config import schema
from strata_recipes.errors import FileError, PackError
from strata_recipes.pack import output_file
from strata_recipes.pack.checksum import blob_checksum
from strata_recipes.pack.lock import FolderLock
from strata_recipes.pack.reader import open_pack
from strata_recipes.pack.sources import open_source
from strata_recipes.pack.writer import build_pack
from tests.pack.gguf_edit import MIXED, TINY, read

FILES = ("dense.safetensors", "experts.bin", "pack.json", "tokenizer.json")


def pack(path: Path, folder: Path, **more: object) -> None:
    with open_source(schema.Model(name="tiny", source=str(path))) as source:
        build_pack(source, folder, **more)  # type: ignore[arg-type]


def content(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != ".lock"}


def test_blobs_lie_at_stored_stride_with_zeros_between(tmp_path: Path) -> None:
    pack(MIXED, tmp_path / "p")
    data, model = (tmp_path / "p" / "experts.bin").read_bytes(), read(MIXED)
    end = 0
    with open_pack(tmp_path / "p") as p:
        for layer in range(4):
            parts = [model.tensor(f"blk.{layer}.ffn_{part}_exps.weight").data for part in ("gate", "up", "down")]
            for expert in range(24):
                sizes = [len(part) // 24 for part in parts]
                blob = b"".join(part[expert * size : (expert + 1) * size] for part, size in zip(parts, sizes, strict=True))
                start = p.index.offset(layer, expert)
                assert start % 4096 == 0 and data[start : start + len(blob)] == blob
                assert not any(data[end:start])
                assert int(p.checksums[layer, expert]) == xxhash.xxh3_64_intdigest(blob, seed=(layer << 16) | expert)
                end = start + len(blob)
        assert not any(data[end:]) and len(data) == p.index.experts_file_bytes


def test_swapped_blobs_have_other_checksums() -> None:
    assert blob_checksum(b"abc", 1, 2) != blob_checksum(b"abc", 2, 1)


def test_dense_tensors_are_readable_by_the_public_library(tiny_pack: Path) -> None:
    model = read(TINY)
    with safe_open(tiny_pack / "dense.safetensors", "np") as theirs, open_pack(tiny_pack) as ours:
        formats = json.loads(theirs.metadata()["strata"])
        assert set(formats) == {t.name for t in ours.index.dense} == set(theirs.keys())
        for t in ours.index.dense:
            data, form, shape = ours.dense(t.name)
            assert data.tobytes() == model.tensor(t.name).data == theirs.get_tensor(t.name)[: t.num_bytes].tobytes()
            assert formats[t.name] == [form, list(shape), t.num_bytes]
            assert data.ctypes.data % 64 == 0 and not data.flags.writeable


def test_the_same_source_gives_the_same_bytes_whatever_the_batch(tmp_path: Path, tiny_pack: Path) -> None:
    for batch in (1, 50_000, 1 << 30):
        pack(TINY, tmp_path / str(batch), batch_bytes=batch)
        assert content(tmp_path / str(batch)) == content(tiny_pack)


def test_progress_counts_every_byte_once(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    pack(TINY, tmp_path / "p", progress=lambda done, total: calls.append((done, total)), batch_bytes=1)
    large = sum((tmp_path / "p" / name).stat().st_size for name in ("experts.bin", "dense.safetensors"))
    assert calls[0] == (0, large) and {total for _, total in calls} == {large}
    assert [done for done, _ in calls] == sorted(done for done, _ in calls) and calls[-1][0] == large
    assert len(calls) > 96  # every blob


KILL = """
    import os, signal, sys
    from pathlib import Path
    from strata_recipes.config import schema
    from strata_recipes.pack import writer
    from strata_recipes.pack.sources import open_source
    calls = -1
    def progress(done, total):
        global calls
        calls += 1
        if sys.argv[3] in (str(calls), "end" if done == total else ""):
            os.kill(os.getpid(), signal.SIGKILL)
    swapped = 0
    def dying(folder, sync=writer.sync_folder):
        global swapped
        swapped += 1
        if sys.argv[3] == f"swap{swapped}":
            os.kill(os.getpid(), signal.SIGKILL)
        sync(folder)
    writer.sync_folder = dying
    with open_source(schema.Model(name="tiny", source=sys.argv[1])) as source:
        writer.build_pack(source, Path(sys.argv[2]), progress, batch_bytes=1)
"""


def killed(source: Path, folder: Path, when: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILL), str(source), str(folder), when], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


# before and after the first record, after the 18th, the last expert, the last dense byte; manifest gone; files renamed
@pytest.mark.parametrize("when", ["0", "1", "18", "96", "end", "swap1", "swap2"])
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_packer_leaves_nothing_that_counts(tmp_path: Path, tiny_pack: Path, when: str) -> None:
    folder = tmp_path / "p"
    killed(TINY, folder, when)
    with pytest.raises(
        PackError, match=r"holds no pack.json: it is no pack, or packing did not finish; build the pack again with mode=pack"
    ):
        open_pack(folder)
    pack(TINY, folder)
    assert content(folder) == content(tiny_pack)


@pytest.mark.parametrize("when", ["1", "end", "swap1", "swap2"])
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_over_an_old_pack_it_is_the_old_one_or_none(tmp_path: Path, tiny_pack: Path, when: str) -> None:
    folder = tmp_path / "p"
    pack(MIXED, folder)
    before = content(folder)
    killed(TINY, folder, when)
    if (folder / "pack.json").exists():
        with open_pack(folder) as old:
            assert old.index.layers[0].gate == "IQ2_XS"
        assert {name: (folder / name).read_bytes() for name in before} == before
    pack(TINY, folder)
    assert content(folder) == content(tiny_pack)


def test_two_packers_at_once(tmp_path: Path, tiny_pack: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from strata_recipes.config import schema
        from strata_recipes.pack.sources import open_source
        from strata_recipes.pack.writer import build_pack
        with open_source(schema.Model(name="tiny", source=sys.argv[1])) as source:
            build_pack(source, Path(sys.argv[2]), batch_bytes=1)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(TINY), str(tmp_path / "p")]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [(p.communicate()[1], p.returncode) for p in both] == [("", 0)] * 2
    assert content(tmp_path / "p") == content(tiny_pack)


def test_who_waited_takes_the_pack_that_is_there(tmp_path: Path, tiny_pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(tiny_pack, tmp_path / "p")
    before = {name: (tmp_path / "p" / name).stat().st_ino for name in FILES}
    enter = FolderLock.__enter__

    def waited(self: FolderLock) -> FolderLock:
        enter(self).waited = True
        return self

    monkeypatch.setattr(FolderLock, "__enter__", waited)
    pack(TINY, tmp_path / "p")
    assert {name: (tmp_path / "p" / name).stat().st_ino for name in FILES} == before
    pack(MIXED, tmp_path / "p")  # another model's pack is not taken
    with open_pack(tmp_path / "p") as p:
        assert p.index.layers[0].gate == "IQ2_XS"


def test_a_lock_file_left_behind_does_not_block(tmp_path: Path, tiny_pack: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / ".lock").touch()
    pack(TINY, tmp_path / "p")
    assert content(tmp_path / "p") == content(tiny_pack)


def test_leftovers_of_dead_packers_are_removed_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "experts.bin.123-abcdef01.tmp").write_bytes(bytes(100))
    pack(TINY, folder)
    assert set(content(folder)) == set(FILES)


def test_a_folder_of_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(PackError, match=r"holds other files \(config.json\): a pack wants a folder of its own"):
        pack(TINY, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_no_space_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(output_file.shutil, "disk_usage", lambda folder: usage._replace(free=1_000_000))
    with pytest.raises(FileError, match=r"has 976.56 KiB free, the pack needs 5.51 MiB: 4,782,336 bytes short"):
        pack(TINY, tmp_path / "p")
    assert content(tmp_path / "p") == {}


@pytest.mark.parametrize("limit", [4096, 1_000_000, 2_000_000])
def test_a_drive_that_fills_up_names_the_file_and_the_bytes_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """The drive takes so many bytes of a file, then says ENOSPC: nothing is left behind."""
    monkeypatch.setattr(output_file, "_reserve", lambda handle, size: None)
    write = output_file.OutputFile.write

    def full(self: output_file.OutputFile, data: bytes) -> None:
        if self.written + len(data) > limit:
            raise self._failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        write(self, data)

    monkeypatch.setattr(output_file.OutputFile, "write", full)
    with pytest.raises(
        FileError,
        match=r"(experts.bin|dense.safetensors) does not fit on its drive: [\d,]+ of [\d,]+ bytes could not be written \(errno 28\)",
    ):
        pack(TINY, tmp_path / "p", batch_bytes=1)
    assert content(tmp_path / "p") == {}


def test_a_drive_that_is_full_at_the_reservation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(output_file, "_reserve", full)
    with pytest.raises(FileError, match=r"experts.bin does not fit on its drive: 1,572,864 of 1,572,864 bytes could not be written"):
        pack(TINY, tmp_path / "p")
    assert content(tmp_path / "p") == {}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses /proc as a folder that nobody can write into")
def test_a_target_that_cannot_be_written_names_folder_and_errno(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"/proc/strata_pack cannot be made a pack's folder: .* \(errno \d+\)"):
        pack(TINY, Path("/proc/strata_pack"))
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=rf"cannot be made a pack's folder: .* \(errno {errno.ENOTDIR}\)"):
        pack(TINY, tmp_path / "file" / "p")


def test_a_read_only_target_is_refused_with_its_errno(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*args: object, **more: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(args[0]))

    (tmp_path / "p").mkdir()
    monkeypatch.setattr("builtins.open", read_only)
    with pytest.raises(FileError, match=rf"\.lock cannot be locked: Read-only file system \(errno {errno.EROFS}\)"):
        FolderLock(tmp_path / "p").__enter__()


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done > 400_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(TINY, tmp_path / "p", progress=interrupt, batch_bytes=1)
    assert content(tmp_path / "p") == {}


def test_memory_stays_bounded_by_the_batch(tmp_path: Path) -> None:
    with open_source(schema.Model(name="tiny", source=str(TINY))) as source:
        tracemalloc.start()
        build_pack(source, tmp_path / "p", batch_bytes=65536)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1_500_000  # of 5.8 MB of weights


def test_a_pack_of_the_shipped_demo_finds_its_table_by_the_package(tmp_path: Path) -> None:
    with open_source(schema.Model(source="shipped:storyteller")) as source:
        build_pack(source, tmp_path / "p")
        assert source.ngram_location is not None
        offset = source.ngram_location.parts[0].offset
    assert json.loads((tmp_path / "p" / "pack.json").read_text())["sources"][0]["path"] == "{strata_recipes}/assets/storyteller.gguf"
    from strata_recipes.pack.sources import SHIPPED

    with open_pack(tmp_path / "p") as p:
        rows, form = p.ngram_rows(np.array([33023, 0]))
        wanted = SHIPPED["shipped:storyteller"].read_bytes()[offset:][: 33024 * 32]
        assert form == "F16" and rows.tobytes() == wanted[-32:] + wanted[:32]


def test_manifest_words(tiny_pack: Path) -> None:
    data = json.loads((tiny_pack / "pack.json").read_text())
    assert data["format_version"] == 1 and data["experts_bytes"] == 96 * 16384 and data["geometry"]["num_experts"] == 24
    assert [len(row) for row in data["checksums"]] == [24 * 16] * 4
    assert data["sources"] == [{"path": str(TINY), "size": TINY.stat().st_size, "digest": data["sources"][0]["digest"]}]
    head_tail = TINY.read_bytes()[: 1 << 20] + TINY.read_bytes()[-(1 << 20) :]
    assert data["sources"][0]["digest"] == xxhash.xxh3_128_hexdigest(head_tail)
    assert struct.unpack("<Q", (tiny_pack / "dense.safetensors").read_bytes()[:8])[0] % 8 == 0
