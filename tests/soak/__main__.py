"""The long soak: `python -m tests.soak` makes 2,500 requests, bounded to 10 minutes, and prints what it came to."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from strata_recipes.pack.reader import open_pack
from tests.faults.conftest import packed
from tests.faults.models import f1, f3
from tests.soak.soak import soak
from tests.soak.test_soak import GROWTH, ROUND


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2500)
    parser.add_argument("--minutes", type=float, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_pack(packed(f1(folder), folder / "1").folder) as one, open_pack(packed(f3(folder), folder / "3").folder) as three:
            found = soak({"f1": one, "f3": three}, args.requests, 60 * args.minutes, ROUND)
    assert found.warm is not None and found.end is not None, "too short to warm up"
    grown = found.end.rss_bytes - found.warm.rss_bytes
    print(f"{found.requests:,} requests ({found.cancelled} given up) in {found.sessions} sessions and {found.seconds:.0f} s")
    print(f"every reply to one of {len(found.replies)} prompts as its first")
    print(f"RSS after warm-up {found.warm.rss_bytes / 2**20:.1f} MiB, at the end {grown / 2**20:+.1f} MiB")
    print(f"handles {found.warm.handles} and {found.end.handles}, threads {found.warm.threads} and {found.end.threads}")
    return 0 if grown < GROWTH and (found.warm.handles, found.warm.threads) == (found.end.handles, found.end.threads) else 1


if __name__ == "__main__":
    raise SystemExit(main())
