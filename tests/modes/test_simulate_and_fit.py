"""mode=simulate and mode=fit as a user starts them: what they print, what they leave, how they refuse."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from strata_recipes.config.compose import compose_config
from strata_recipes.decide.what_if import WhatIf, changes, gains
from strata_recipes.errors import PlanError
from strata_recipes.modes.fit import fit, profiles
from strata_recipes.modes.plan import plan
from strata_recipes.modes.simulate import simulate
from strata_recipes.plan.plan import Prediction
from strata_recipes.results.metrics import Metrics
from strata_recipes.results.timeline import Bar, timeline
from strata_recipes.units import GiB
from tests.plan.cases import composed

LAPTOP = ["hardware=rtx3060_6gb", "model=qwen38_flash_next_q2_0", "workload=prompt_7k4"]


def only(root: Path) -> Path:
    (kind,) = root.iterdir()
    (folder,) = kind.iterdir()
    return folder


def test_simulate_leaves_a_runs_keys_marked_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*LAPTOP, "experts=mapped", "prefill=layer_major", "mode=simulate", f"results.root={tmp_path}"]
    assert simulate(compose_config(words), words) == 0
    folder, out = only(tmp_path), capsys.readouterr().out
    found = json.loads((folder / "metrics.json").read_text())
    assert found.keys() == json.loads(Metrics().to_json()).keys() and found["simulated"] is True
    kept = json.loads((folder / "plan.json").read_text())["predicted"]
    assert found["predicted"]["ready_s"] == found["ready_s"] == kept["ready_s"]
    read = found["prefill"]
    assert read["seconds"] == kept["prefill_s"] and read["tokens"] == 7400 and read["order"] == "layer_major"
    assert read["expert_bytes_touched"] <= read["drive_bytes"] <= read["expert_bytes_one_pass"]
    assert sum(found["decode"][f"{tier}_hits"] for tier in ("vram", "ram", "file")) == pytest.approx(255 * 480, abs=2)
    assert json.loads((folder / "status.json").read_text())["state"] == "done"
    assert "nothing ran" in (folder / "README.md").read_text()
    for part in ("Simulated, not measured", "waits for", "lowest available RAM", "(at least", "choices in VRAM, RAM, file"):
        assert part in out
    picture = ET.fromstring((folder / "timeline.svg").read_text())
    lanes = {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert {"drive", "PCIe", "compute"} <= lanes


def test_a_timeline_ends_where_its_phases_end() -> None:
    bars = [Bar("drive", "a < b", 0.0, 2.0, 0.5), Bar("PCIe", "c", 2.0, 4.0, 1.0)]
    boxes = list(ET.fromstring(timeline("x & y", [("end", 4.0)], bars)).iter("{http://www.w3.org/2000/svg}rect"))[1:]
    ends = [float(box.get("x", "0")) + float(box.get("width", "0")) for box in boxes]
    assert ends[1] - 120 == pytest.approx(2 * (ends[0] - 120)) and [box.get("fill-opacity") for box in boxes] == ["0.500", "1.000"]


def test_fit_answers_in_one_screen_and_leaves_it_in_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(compose_config([*LAPTOP, "mode=fit", f"results.root={tmp_path}"]), []) == 0
    out = capsys.readouterr().out
    assert "qwen38_flash_next_q2_0 fits rtx3060_6gb" in out and "predicted: decode" in out and "busy" in out
    assert "a drive twice as fast: " in out and " -> " in out
    assert len(out.splitlines()) <= 25
    folder = only(tmp_path)
    page = " ".join((folder / "README.md").read_text().split())
    assert " ".join(out.split("results: ")[0].split()) in page, "the page is the screen"
    (pc,) = json.loads((folder / "fit.json").read_text())["pcs"]
    kept = json.loads((folder / "plan.json").read_text())
    assert pc["predicted"] == kept["predicted"] and pc["prompt_tokens"] == kept["prefill"]["prompt_tokens"] == 7400
    assert json.loads((folder / "status.json").read_text())["state"] == "done"


@pytest.mark.parametrize("more", [[], ["mode.profiles=true"], ["mode.profiles=true", "hardware=rtx3060_6gb", "hardware.headroom=1GiB"]])
def test_a_fit_is_asked_again_from_its_folder(tmp_path: Path, more: list[str]) -> None:
    model = "model=qwen38_flash_next_q2_0"
    assert fit(compose_config([model, "mode=fit", *more, f"results.root={tmp_path}/first"]), []) == 0
    first = only(tmp_path / "first")
    assert fit(compose_config([f"results.root={tmp_path}/again"], str(first), "resolved"), []) == 0
    again = only(tmp_path / "again")
    assert again.name.split("_")[2] == first.name.split("_")[2], "the same hash"
    for name in ("fit.json", *([] if more else ["plan.json", "machine.json"])):
        assert (again / name).read_text() == (first / name).read_text(), name


def test_fit_says_what_would_make_it_fit_and_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*LAPTOP, "kv.max_context=100000", "mode=fit", f"results.root={tmp_path}"]
    with pytest.raises(PlanError, match="vram is short by"):
        fit(compose_config(words), words)
    out = capsys.readouterr().out
    assert "does not fit rtx3060_6gb" in out and "a card of 12 GiB, as fast would make it fit" in out
    folder = only(tmp_path)
    (pc,) = json.loads((folder / "fit.json").read_text())["pcs"]
    assert pc["fits"] is False and "vram is short by" in pc["why_not"] and pc["others"][0]["change"] == "a card of 12 GiB, as fast"
    assert json.loads((folder / "status.json").read_text())["exit_code"] == 2 and not (folder / "plan.json").exists()


def test_fit_lists_every_shipped_pc(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["model=qwen38_flash_next_iq2_xs", "mode=fit", "mode.profiles=true", "workload=prompt_32k", f"results.root={tmp_path}"]
    assert fit(compose_config(words), []) == 0
    out = capsys.readouterr().out.replace("\n", "")
    assert "a prompt of 32,768 tokens and a reply of up to 256" in " ".join(out.split())
    assert {"rtx3060_6gb", "h200", "rtx4090_24gb_32gb"} <= set(profiles()) and "auto" not in profiles()
    assert all(name[:15] in out for name in profiles())
    assert "vram is short by" in out  # the laptop at this context
    assert [pc["pc"] for pc in json.loads((only(tmp_path) / "fit.json").read_text())["pcs"]] == profiles()


def pcs(root: Path, *words: str) -> list[dict[str, Any]]:
    """What a fit of these words found."""
    assert fit(compose_config(["model=qwen38_flash_next_q2_0", "mode=fit", *words, f"results.root={root}"]), []) == 0
    return list(json.loads((only(root) / "fit.json").read_text())["pcs"])


def test_the_pc_that_was_stated_is_a_line_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = ("hardware=rtx3060_6gb", "hardware.ram=64GiB", "hardware.available=60GiB")
    (alone,) = pcs(tmp_path / "alone", *mine)
    first, *shipped = pcs(tmp_path / "all", *mine, "mode.profiles=true")
    assert first["pc"] == "rtx3060_6gb, as stated" and [pc["pc"] for pc in shipped] == profiles()
    (as_shipped,) = [pc for pc in shipped if pc["pc"] == "rtx3060_6gb"]
    assert first["predicted"] == alone["predicted"] != as_shipped["predicted"]
    assert "rtx3060_6gb, as stated" in " ".join(capsys.readouterr().out.split())
    named = pcs(tmp_path / "named", "hardware=rtx3060_6gb", "mode.profiles=true")
    assert [pc["pc"] for pc in named] == profiles(), "a shipped PC is in the table anyway"


def test_a_prompt_that_nobody_stated_is_long_enough_to_tell_a_speed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (unstated,) = pcs(tmp_path / "unstated", "hardware=rtx3060_6gb")
    assert unstated["prompt_tokens"] == 512
    assert "a prompt of 512 tokens, as none is stated, in" in " ".join(capsys.readouterr().out.split())
    kept = json.loads((only(tmp_path / "unstated") / "plan.json").read_text())
    assert any(note.startswith("no prompt is stated: mode=fit plans one of 512 tokens") for note in kept["notes"])
    (stated,) = pcs(tmp_path / "stated", "hardware=rtx3060_6gb", "workload.text='Hello, you.'")
    assert stated["prompt_tokens"] == 3, "what is stated is not replaced: an estimate of 11 characters"
    pcs(tmp_path / "all", "mode.profiles=true")
    assert "a prompt of 512 tokens, as none is stated, and a reply of up to 256" in " ".join(capsys.readouterr().out.split())


def test_a_plan_says_what_a_better_pc_would_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*LAPTOP, "mode=plan", f"results.root={tmp_path}"]
    assert plan(compose_config(words), words) == 0
    out = capsys.readouterr().out
    assert "With a better PC, predicted" in out and "a drive twice as fast" in out


def test_the_changes_are_one_at_a_time() -> None:
    _, pc = composed("hardware=rtx3060_6gb")
    found = dict(changes(pc))
    assert list(found) == ["8 GiB more RAM", "a card of 8 GiB, as fast", "a drive twice as fast"]
    assert found["8 GiB more RAM"].ram_available_bytes == pc.ram_available_bytes + 8 * GiB
    card, drive = found["a card of 8 GiB, as fast"], found["a drive twice as fast"]
    assert card.gpu is not None and pc.gpu is not None and card.gpu.free_bytes - pc.gpu.free_bytes == 2 * GiB
    assert card.drive == pc.drive and drive.gpu == pc.gpu and drive.drive.direct == 2 * pc.drive.direct


def test_gains_under_a_twentieth_are_not_told() -> None:
    now, then = Prediction(10.0, 2.0, 100.0, 19.0), Prediction(9.9, 2.0, 104.0, 27.0)
    assert gains(now, then) == "decode 19 -> 27 tokens/s"
    assert gains(now, now) == "" and WhatIf("x", None).predicted is None


def test_a_pc_with_far_too_little_ram_is_told_how_much_more_would_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"model=qwen38_flash_next_q2_0 hardware=cpu hardware.ram=2GiB hardware.available=1GiB results.root={tmp_path}"
    with pytest.raises(PlanError):
        fit(compose_config(["mode=fit", *words.split()]), [])
    assert "32 GiB more RAM would make it fit" in " ".join(capsys.readouterr().out.split())
