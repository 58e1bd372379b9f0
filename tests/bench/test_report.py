"""The report: pictures that show every run, and one page that a browser opens with nothing fetched."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from strata_recipes.bench.plots import COLOURS, bytes_by_tier, paired_points, ram_over_time
from strata_recipes.bench.runs import Mark, Sample
from strata_recipes.bench.summary import Summary, summarised
from strata_recipes.modes.bench_report import write_report
from strata_recipes.results.record import ResultsFolder
from strata_recipes.units import GiB
from tests.bench.made import asked, run, series, stopped

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
TIERS = {"vram": 3 * GiB, "ram": 2 * GiB, "file": GiB}
FILES = {"bench.json", "runs.csv", "available.csv", "report.html", "README.md"} | {
    f"{name}.{form}" for name in ("paired", "available", "tiers") for form in ("svg", "png")
}


def samples(summary: Summary) -> list[tuple[object, list[Sample]]]:
    return [(each, [Sample(0.25 * n, (20 - n) * GiB) for n in range(18)]) for each in summary.runs]


def with_tiers() -> Summary:
    found = [run(arm, pair, 10.0 * pair + len(arm), tiers=TIERS) for pair in (1, 2, 3) for arm in ("mapped", "unbuffered")]
    return summarised(asked("mapped", "unbuffered"), [*found, stopped("mapped", 4)])


def test_each_pair_is_a_line_and_each_counted_run_a_point() -> None:
    summary = series()
    (panel,) = paired_points(summary).axes
    points = [line for line in panel.lines if line.get_marker() == "o"]
    lines = [line for line in panel.lines if line.get_marker() in ("None", "", None)]
    assert len(points) == 4 + 6 and {str(line.get_color()) for line in points} == set(COLOURS[:2])
    assert sorted(len(np.asarray(line.get_xdata())) for line in lines) == [1, 1, 2, 2, 2, 2]
    assert panel.get_ylim()[0] == 0, "a small difference must look small"


def test_ram_over_time_shows_stopped_runs_and_the_threshold() -> None:
    summary = series()
    (panel,) = ram_over_time(summary, samples(summary), 4 * GiB).axes  # type: ignore[arg-type]
    dotted = [line for line in panel.lines if line.get_linestyle() == ":"]
    assert len(dotted) == 2 and [text.get_text() for text in panel.texts] == ["watchdog"]
    assert max(float(np.max(np.asarray(line.get_ydata()))) for line in dotted) == 20.0


def test_tiers_stack_to_all_experts_and_an_empty_bench_says_so() -> None:
    (panel,) = bytes_by_tier(with_tiers()).axes
    assert [round(patch.get_width(), 3) for patch in panel.patches] == [3.0, 3.0, 2.0, 2.0, 1.0, 1.0]  # type: ignore[attr-defined]
    assert [text.get_text() for text in panel.texts] == ["3", "3", "2", "2", "1", "1"]
    sliver = summarised(asked("a"), [run("a", 1, tiers={"vram": GiB // 50, "ram": 0, "file": 10 * GiB})])
    assert [text.get_text() for text in bytes_by_tier(sliver).axes[0].texts] == ["10"], "no number wider than its bar"
    nothing = summarised(asked("a"), [run("a", 1, mark=Mark.refused, why="no", figures={}, identity={})])
    assert [text.get_text() for text in paired_points(nothing).axes[0].texts] == ["no run is counted"]
    assert [text.get_text() for text in bytes_by_tier(nothing).axes[0].texts] == ["no run came to a plan"]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    folder = ResultsFolder(tmp_path / "bench")
    folder.path.mkdir()
    summary = with_tiers()
    write_report(summary, samples(summary), folder)  # type: ignore[arg-type]
    return folder.path


class Outside(HTMLParser):
    """What a page would fetch, and how deep its last heading and text are."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data") and value and not value.startswith("#"):
                self.fetched.append(value)
            if name == "id" and value:
                self.ids.append(value)


def test_the_page_is_whole_in_itself_and_ends_with_what_was_not_measured(written: Path) -> None:
    assert {path.name for path in written.iterdir()} == FILES
    text = (written / "report.html").read_text(encoding="utf-8")
    found = Outside()
    found.feed(text)
    assert found.fetched == [] and "script" not in found.tags and "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert len(found.ids) == len(set(found.ids)), "three pictures share no name"
    assert found.tags.count("svg") == 3
    ending = text[text.index('id="not-measured"') :]
    assert "<h2" not in ending and "<table" not in ending and "Any other PC" in ending and "Pair 4, mapped is in no mean" in ending


def test_an_arms_name_is_text_on_the_page_and_in_pictures(tmp_path: Path) -> None:
    name = "$x_1$ | é <script>alert(1)</script> &"
    summary = summarised(asked(name, "b"), [run(name, 1, 1.0), run("b", 1, 2.0)])
    folder = ResultsFolder(tmp_path)
    write_report(summary, samples(summary), folder)  # type: ignore[arg-type]
    assert "<script>" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "$x_1$" in (tmp_path / "paired.svg").read_text(encoding="utf-8"), "no formula"
    assert "\\|" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_the_same_runs_give_the_same_files(written: Path, tmp_path: Path) -> None:
    again = ResultsFolder(tmp_path / "again")
    again.path.mkdir()
    write_report(with_tiers(), samples(with_tiers()), again)  # type: ignore[arg-type]
    for name in FILES - {"README.md"}:
        assert (again.path / name).read_bytes() == (written / name).read_bytes(), name


def chromium(*words: str, home: Path) -> str:
    """Without a sandbox, which root has not, and with no host to be found."""
    assert CHROMIUM
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={home}",
        "--host-resolver-rules=MAP * ~NOTFOUND", *words,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (apt-get install chromium)")
def test_chromium_shows_tables_and_pictures(written: Path, tmp_path: Path) -> None:
    address = (written / "report.html").as_uri()
    dom = chromium("--dump-dom", address, home=tmp_path / "profile")
    found = Outside()
    found.feed(dom)
    assert found.tags.count("table") == 4 and found.tags.count("svg") == 3
    assert "unbuffered less mapped" in dom and "What was not measured" in dom
    shot = tmp_path / "page.png"
    chromium(f"--screenshot={shot}", "--window-size=1000,2600", address, home=tmp_path / "profile")
    pixels = np.rint(imread(shot)[..., :3] * 255).astype(int)
    for colour in COLOURS[:3]:  # points of both arms, and a bar of each tier
        wanted = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
        assert (np.abs(pixels - wanted).sum(axis=-1) <= 6).sum() > 200, f"{colour} is not on the page"
