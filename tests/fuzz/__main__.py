"""The long form: `python -m tests.fuzz --minutes 60` tries new damage to every kind of file until the time is up, and prints its figures.

A failure is shrunk to its smallest edits by hypothesis and ends the run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
from hypothesis import given, seed, settings

from tests.fuzz.damage import CUT, EDITS, Edit, Hang, damaged, refused_or_fine
from tests.fuzz.targets import Target, targets

BATCH = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    settings.register_profile("long", deadline=None, database=None, max_examples=BATCH)
    settings.load_profile("long")
    with tempfile.TemporaryDirectory() as folder:
        made = targets(Path(folder))
        tried, refused, grown = fuzz(made, time.monotonic() + 60 * args.minutes, args.seed)
    for name in made:
        print(f"{name:40} {tried[name]:9,} tried {refused[name]:9,} refused")
    print(f"{'all':40} {sum(tried.values()):9,} tried {sum(refused.values()):9,} refused; RSS grew by {grown / 2**20:.1f} MiB")


def fuzz(made: dict[str, Target], end: float, start: int) -> tuple[Counter[str], Counter[str], int]:
    """Files tried and refused by kind, and by how much the process grew after its first round."""
    tried, refused, rss, number = Counter[str](), Counter[str](), 0, start
    while time.monotonic() < end:
        for name, target in made.items():
            tried_now, refused_now = batch(target, number, BATCH if name != "resolved.yaml" else BATCH // 10)
            tried[name] += tried_now
            refused[name] += refused_now
        rss, number = rss or psutil.Process().memory_info().rss, number + 1
        if number % 2 == 0:
            print(f"round {number}: {sum(tried.values()):,} files", flush=True)
    return tried, refused, psutil.Process().memory_info().rss - rss


def batch(target: Target, number: int, examples: int) -> tuple[int, int]:
    answers: list[bool] = []

    @seed(number)
    @settings(max_examples=examples)
    @given(edits=EDITS, cut=CUT)
    def check(edits: list[Edit], cut: float | None) -> None:
        try:
            answers.append(refused_or_fine(target.path, target.wrap(damaged(target.good, edits, cut, target.span)), target.use))
        except Hang:
            print(f"{target.path.name} hangs with {edits}, {cut}", flush=True)  # hypothesis shrinks no hang
            raise

    check()
    return len(answers), sum(answers)


if __name__ == "__main__":
    main()
