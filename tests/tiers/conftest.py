"""The small pack of these tests, written once."""

from __future__ import annotations

import pytest

from tests.tiers.small_pack import SmallPack, write_small_pack


@pytest.fixture(scope="session")
def small_pack(tmp_path_factory: pytest.TempPathFactory) -> SmallPack:
    return write_small_pack(tmp_path_factory.mktemp("pack"))
