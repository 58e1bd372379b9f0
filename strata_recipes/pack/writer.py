"""Writes a pack from an opened source: all files under temporary names, flushed, renamed, the manifest last."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from strata_recipes.errors import FileError, PackError, StrataError
from strata_recipes.pack.checksum import blob_checksum
from strata_recipes.pack.dense_file import DENSE_FILE, dense_file_bytes, dense_header, padded_bytes
from strata_recipes.pack.index import FORMAT_VERSION, PackIndex
from strata_recipes.pack.input_file import os_sentence
from strata_recipes.pack.lock import LOCK_FILE, FolderLock
from strata_recipes.pack.manifest import EXPERTS_FILE, MANIFEST_FILE, NGRAM_FILE, TOKENIZER_FILE, Manifest, manifest_text
from strata_recipes.pack.output_file import TEMPORARY, OutputFile, check_space, sync_folder
from strata_recipes.pack.profile import PROFILE_FILE
from strata_recipes.pack.reader import open_pack
from strata_recipes.pack.sources.source import IN_PACK, ModelSource
from strata_recipes.units import MiB

BATCH_BYTES = 16 * MiB
Progress = Callable[[int, int], None]
_DATA_FILES = (EXPERTS_FILE, DENSE_FILE, NGRAM_FILE, TOKENIZER_FILE)
_OURS = {*_DATA_FILES, MANIFEST_FILE, PROFILE_FILE, LOCK_FILE}


def build_pack(
    source: ModelSource, folder: Path, progress: Progress | None = None, batch_bytes: int = BATCH_BYTES, *, reuse: bool = False
) -> None:
    """Packs a source into a folder. `progress(done, total)` counts bytes. Killed at any moment, no pack is there that looks whole.

    Where another process packs the same source into the same folder at the same time, its result is waited for and used;
    with `reuse` also one that was there before.
    """
    folder = prepare_folder(folder)
    with FolderLock(folder) as lock:
        total = pack_bytes(source)
        if (lock.waited or reuse) and _packed_id(folder) == source.index.pack_id:
            (progress or _silent)(total, total)
            return
        try:
            _remove_leftovers(folder)
            check_space(folder, total)
            _Writer(source, folder, progress or _silent, batch_bytes, total).write()
        except OSError as error:
            raise FileError(os_sentence(folder, "cannot be packed into", error)) from error


def prepare_folder(folder: Path) -> Path:
    """The folder, made if need be; refused where it holds files that are not a pack's."""
    folder = Path(os.path.expanduser(folder))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(os_sentence(folder, "cannot be made a pack's folder", error)) from error
    check_folder(folder)
    return folder


def check_folder(folder: Path) -> None:
    """Whether a pack may be put there, before any work: a folder of its own, or nothing yet."""
    try:
        foreign = sorted(p.name for p in folder.iterdir() if p.name not in _OURS and not _leftover(p))
    except FileNotFoundError:
        return
    except OSError as error:
        raise FileError(os_sentence(folder, "cannot be made a pack's folder", error)) from error
    if foreign:
        raise PackError(
            f"{folder} holds other files ({', '.join(foreign[:3])}): a pack wants a folder of its own, state another model.pack"
        )


def pack_bytes(source: ModelSource) -> int:
    """Bytes of the large files that a pack of this source takes."""
    index = source.index
    table = index.ngram.num_bytes if index.ngram and _copies_ngram(source) else 0
    return index.experts_file_bytes + dense_file_bytes(index.dense) + table


def _silent(done: int, total: int) -> None: ...


def _copies_ngram(source: ModelSource) -> bool:
    return source.ngram_location is not None and any(p.source == IN_PACK for p in source.ngram_location.parts)


def _leftover(path: Path) -> bool:
    return path.name.endswith(TEMPORARY) and path.name.split(".", 1)[0] in {name.split(".", 1)[0] for name in _OURS}


def _packed_id(folder: Path) -> str | None:
    """Id of a whole pack in the folder; None where there is none."""
    try:
        with open_pack(folder) as pack:
            return pack.index.pack_id
    except StrataError:
        return None


def _remove_leftovers(folder: Path) -> None:
    """Temporary files of packers that died: the lock is ours, so nobody alive owns them."""
    for path in folder.iterdir():
        if _leftover(path):
            path.unlink()


class _Writer:
    def __init__(self, source: ModelSource, folder: Path, progress: Progress, batch_bytes: int, total: int) -> None:
        self._source, self._folder, self._progress = source, folder, progress
        self._batch_bytes, self._total, self._done = batch_bytes, total, 0
        self._checksums: list[str] = []

    def write(self) -> None:
        index, tokenizer = self._source.index, (self._source.tokenizer_json or "").encode()
        with ExitStack() as stack:

            def output(name: str, size: int, pieces: Iterator[bytes | memoryview]) -> None:
                file = stack.enter_context(OutputFile(self._folder / name, size))
                for piece in pieces:
                    file.write(piece)
                    self._count(len(piece))
                file.flush()
                files.append(file)

            files: list[OutputFile] = []
            self._progress(0, self._total)
            output(EXPERTS_FILE, index.experts_file_bytes, self._experts(index))
            output(DENSE_FILE, dense_file_bytes(index.dense), self._dense())
            if _copies_ngram(self._source) and index.ngram:
                output(NGRAM_FILE, index.ngram.num_bytes, self._source.ngram_chunks())
            if tokenizer:
                output(TOKENIZER_FILE, len(tokenizer), iter((tokenizer,)))
            manifest = manifest_text(self._manifest(len(tokenizer)))
            self._swap(files)
            output(MANIFEST_FILE, len(manifest), iter((manifest,)))
            files[-1].commit()
        sync_folder(self._folder)

    def _swap(self, files: list[OutputFile]) -> None:
        """The old manifest goes before the first new file comes, so that no mixture ever counts as whole."""
        same = _packed_id(self._folder) == self._source.index.pack_id
        (self._folder / MANIFEST_FILE).unlink(missing_ok=True)
        sync_folder(self._folder)
        for name in (NGRAM_FILE, TOKENIZER_FILE) + (() if same else (PROFILE_FILE,)):
            (self._folder / name).unlink(missing_ok=True)
        for file in files:
            file.commit()
        sync_folder(self._folder)

    def _count(self, num_bytes: int) -> None:
        self._done = min(self._done + num_bytes, self._total)
        self._progress(self._done, self._total)

    def _experts(self, index: PackIndex) -> Iterator[memoryview]:
        """experts.bin in batches of whole blobs at stored stride; padding is zero."""
        for layer, at in enumerate(index.layers):
            per_batch = max(1, self._batch_bytes // at.stride)
            buffer = memoryview(bytearray(min(per_batch, index.geometry.num_experts) * at.stride))
            row = []
            for first in range(0, index.geometry.num_experts, per_batch):
                batch = range(first, min(first + per_batch, index.geometry.num_experts))
                for place, expert in enumerate(batch):
                    blob = self._source.read_expert(layer, expert)
                    row.append(f"{blob_checksum(blob, layer, expert):016x}")
                    buffer[place * at.stride : place * at.stride + at.blob_bytes] = blob
                yield buffer[: len(batch) * at.stride]
            self._checksums.append("".join(row))

    def _dense(self) -> Iterator[bytes]:
        yield dense_header(self._source.index.dense)
        for tensor, pieces in self._source.dense_tensors():
            yield from pieces
            yield bytes(padded_bytes(tensor) - tensor.num_bytes)

    def _manifest(self, tokenizer_bytes: int) -> Manifest:
        source, index = self._source, self._source.index
        return Manifest(
            format_version=FORMAT_VERSION,
            name=index.name,
            pack_id=index.pack_id,
            geometry=index.geometry,
            sources=source.files,
            experts_bytes=index.experts_file_bytes,
            dense_bytes=dense_file_bytes(index.dense),
            tokenizer_bytes=tokenizer_bytes,
            layers=index.layers,
            dense=index.dense,
            ngram=source.ngram_location,
            eos_token_ids=source.eos_token_ids,
            chat_template=source.chat_template,
            notes=index.notes,
            unused=source.unused,
            checksums=tuple(self._checksums),
        )
