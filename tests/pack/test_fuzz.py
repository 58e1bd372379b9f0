"""Damaged files of every kind: whatever bytes change, the answer is one sentence, and little memory is taken for it."""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from strata_recipes.config import choices, schema
from strata_recipes.errors import FileError, PackError
from strata_recipes.pack.profile import load_profile, save_profile
from strata_recipes.pack.reader import open_pack
from strata_recipes.pack.sources import open_source
from tests.pack.gguf_edit import TINY

MOST_BYTES = 64 << 20
RELAXED = settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
# what to put where: single bytes, and the numbers that break sizes
PATCH = st.one_of(
    st.binary(min_size=1, max_size=8),
    st.sampled_from([0, 1, 2**31 - 1, 2**32 - 1, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]).map(lambda n: n.to_bytes(8, "little")),
    st.sampled_from([b"null", b"1e999", b"-1", b"[[[[", b'""', b"NaN", b"99999999", b"true", b"\\u0000"]),
)
CUT = st.one_of(st.none(), st.integers(0, 1 << 20))


def refused_or_fine(path: Path, data: bytes, position: float, patch: bytes, cut: int | None, use: Callable[[], object], span: int) -> None:
    """Writes the damaged file and opens it; any other error, a long message or a big allocation fails the test."""
    at = int(position * min(span, len(data)))
    damaged = data[:at] + patch + data[at + len(patch) :]
    path.write_bytes(damaged if cut is None else damaged[:cut])
    tracemalloc.start()
    try:
        use()
    except (PackError, FileError) as error:
        assert "\n" not in str(error) and 10 < len(str(error)) < 1500
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MOST_BYTES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@RELAXED
@given(position=st.floats(0, 1), patch=PATCH, cut=CUT)
@example(position=8 / 25000, patch=b"\xff" * 8, cut=None)
def test_gguf(folder: Path, position: float, patch: bytes, cut: int | None) -> None:
    path = folder / "a.gguf"
    use = lambda: open_source(schema.Model(source=str(path))).close()  # noqa: E731
    refused_or_fine(path, TINY.read_bytes(), position, patch, cut, use, span=25_000)  # the header


@RELAXED
@given(position=st.floats(0, 1), patch=PATCH, cut=CUT)
def test_safetensors(folder: Path, checkpoint: Path, position: float, patch: bytes, cut: int | None) -> None:
    copy = folder / "hf"
    if not copy.exists():
        shutil.copytree(checkpoint, copy)
    name = "model-00002-of-00004.safetensors"  # holds the hash buffers too
    use = lambda: open_source(schema.Model(kind=choices.Source.hf, source=str(copy))).close()  # noqa: E731
    refused_or_fine(copy / name, (checkpoint / name).read_bytes(), position, patch, cut, use, span=9_000)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "generation_config.json"])
@settings(RELAXED, max_examples=40)
@given(position=st.floats(0, 1), patch=PATCH, cut=CUT)
def test_json_of_a_checkpoint(folder: Path, checkpoint: Path, name: str, position: float, patch: bytes, cut: int | None) -> None:
    copy = folder / f"hf_{name}"
    if not copy.exists():
        shutil.copytree(checkpoint, copy)
    use = lambda: open_source(schema.Model(kind=choices.Source.hf, source=str(copy))).close()  # noqa: E731
    refused_or_fine(copy / name, (checkpoint / name).read_bytes(), position, patch, cut, use, span=1 << 20)


@RELAXED
@given(position=st.floats(0, 1), patch=PATCH, cut=CUT)
def test_pack_json(folder: Path, tiny_pack: Path, position: float, patch: bytes, cut: int | None) -> None:
    copy = folder / "pack"
    if not copy.exists():
        shutil.copytree(tiny_pack, copy)
    data = (tiny_pack / "pack.json").read_bytes()
    refused_or_fine(copy / "pack.json", data, position, patch, cut, lambda: open_pack(copy).close(), span=1 << 20)


@settings(RELAXED, max_examples=40)
@given(position=st.floats(0, 1), patch=PATCH, cut=CUT)
def test_profile(folder: Path, tiny_pack: Path, position: float, patch: bytes, cut: int | None) -> None:
    with open_pack(tiny_pack) as pack:
        index = pack.index
    good, path = folder / "good.npz", folder / "profile.npz"
    save_profile(good, [(la, ex) for la in range(4) for ex in range(24)])
    refused_or_fine(path, good.read_bytes(), position, patch, cut, lambda: load_profile(path, index), span=1 << 20)


def test_deep_nesting_is_refused(tiny_pack: Path, folder: Path) -> None:
    copy = Path(shutil.copytree(tiny_pack, folder / "deep"))
    (copy / "pack.json").write_bytes(b'{"a":' + b"[" * 200_000)
    with pytest.raises(PackError, match="nested too deeply"):
        open_pack(copy)


def test_a_changed_digit_of_a_pack_never_goes_unseen(tiny_pack: Path, folder: Path) -> None:
    copy = Path(shutil.copytree(tiny_pack, folder / "digit"))
    data = (tiny_pack / "pack.json").read_bytes()
    rng = np.random.default_rng(0)
    digits = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
    for at in rng.choice(digits, 60, replace=False):
        changed = bytearray(data)
        changed[at] = ord("0") + (changed[at] - ord("0") + 1) % 10
        (copy / "pack.json").write_bytes(changed)
        with pytest.raises((PackError, FileError)):
            open_pack(copy)
