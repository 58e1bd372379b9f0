"""The main job on the shipped model: what a newcomer sees, and that its folder runs again to the same bits."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml

from strata_recipes.machine import memory
from strata_recipes.modes.reply import Reply
from tests.end_to_end.conftest import DATA, Strata

FILES = {
    "resolved.yaml", "overrides.yaml", "machine.json", "plan.json", "metrics.json", "identity.json", "status.json", "run.log", "README.md",
    "samples.csv", "reply.json",
}  # fmt: skip


def test_the_default_run_tells_the_oracles_story_and_replays(strata: Strata, inside: Strata) -> None:
    first = strata()
    assert first.code == 0, first.err
    with np.load(DATA / "oracle" / "storyteller.p1.npz") as oracle:
        assert first.json("reply.json")["tokens"][:64] == oracle["tokens"].tolist()[:64]
    assert first.json("reply.json")["text"] in first.out
    assert {path.name for path in first.folder.iterdir()} == FILES
    assert first.json("status.json")["state"] == "done"
    metrics = first.json("metrics.json")
    assert metrics["prefill"]["tokens"] == 13
    assert 0 < metrics["ready_s"] < metrics["first_token_s"]
    again = inside("--config-dir", str(first.folder), "--config-name", "resolved", root="again")
    assert again.code == 0, again.err
    for name in ("identity.json", "plan.json"):
        assert (again.folder / name).read_bytes() == (first.folder / name).read_bytes()


def test_a_replay_plans_from_the_recorded_facts_not_from_what_is_free_now(inside: Strata) -> None:
    first = inside("decode.max_new_tokens=2", "hardware.available=3GiB")
    assert first.code == 0, first.err
    facts = yaml.safe_load((first.folder / "resolved.yaml").read_text())["hardware"]
    assert facts["available"] == 3 << 30
    assert isinstance(facts["drive"]["direct"], float), "probed facts are literal"
    again = inside("--config-dir", str(first.folder), "--config-name", "resolved", root="again")
    assert again.code == 0, again.err
    assert (again.folder / "plan.json").read_bytes() == (first.folder / "plan.json").read_bytes()


def test_a_plan_that_this_pc_cannot_hold_ends_with_4(inside: Strata, monkeypatch: pytest.MonkeyPatch) -> None:
    first = inside("decode.max_new_tokens=2")
    monkeypatch.setattr(memory, "available", lambda: memory.Available(20 << 20, "the limit of this test"))
    again = inside("--config-dir", str(first.folder), "--config-name", "resolved", root="again")
    assert again.code == 4
    assert "20.00 MiB is available (the limit of this test)" in again.last_line
    assert not again.folders, "nothing was started"


def test_every_experts_mode_gives_the_same_identity(inside: Strata) -> None:
    words = ("decode.max_new_tokens=6", "experts.verify=false")
    found = set()
    modes = (
        ["experts=resident"],
        ["experts=full_arena"],
        ["experts=mapped"],
        ["experts=budget", "experts.ram_budget=1MiB"],
        ["experts.slots=7"],
    )
    for number, mode in enumerate(modes):
        done = inside(*words, *mode, root=f"mode{number}")
        assert done.code == 0, done.err
        identity = done.json("identity.json")
        found.add((identity["tokens_md5"], identity["first_logits_md5"]))
    assert len(found) == 1


def test_drafts_change_no_token_and_are_told(inside: Strata) -> None:
    """The story repeats itself, so that some guesses are right."""
    plain, drafted = inside(root="plain"), inside("decode.draft=suffix", root="drafted")
    assert plain.code == drafted.code == 0, drafted.err
    assert plain.json("identity.json") == drafted.json("identity.json")
    assert plain.json("metrics.json")["decode"]["drafted"] == 0
    found = drafted.json("metrics.json")["decode"]
    assert 0 < found["accepted"] < found["drafted"]
    passes = found["tokens"] - 1 - found["accepted"]
    line = f"drafted {found['drafted']} tokens, {found['accepted']} of them right"
    log = (drafted.folder / "run.log").read_text()
    assert line in log and f"%): {passes} passes over the layers" in log
    assert f"{found['accepted']} of {found['drafted']} guessed tokens were right" in drafted.out
    assert "drafted" not in (plain.folder / "run.log").read_text()


def test_the_models_own_guesses_are_a_known_name_and_refused(inside: Strata) -> None:
    done = inside("decode.draft=mtp")
    assert done.code == 2 and not done.folders
    assert "decode.draft=mtp is not built in this version: use decode.draft=suffix, or none" in done.last_line


def test_another_pc_is_emulated_and_said_so(inside: Strata) -> None:
    done = inside("hardware=rtx3060_6gb", "prefill=layer_major", "decode.max_new_tokens=2")
    assert done.code == 0, done.err
    assert "note: prefill=layer_major gives chunked here: " in done.err and "a prompt of 13 tokens is one chunk of 512" in done.err
    assert "Not this machine's own" in done.out
    assert "gpu.vram" in done.json("metrics.json")["emulated"]["facts"]
    plan = done.json("plan.json")
    assert plan["vram_slots"] > 0
    assert plan["vram_slots"] + plan["ram_blobs"] + plan["file_blobs"] == 384
    assert done.json("metrics.json")["memory"]["vram_peak_bytes"] <= done.json("metrics.json")["memory"]["vram_budget_bytes"]


def test_what_ends_a_reply_is_told_in_a_line_of_its_own(inside: Strata, monkeypatch: pytest.MonkeyPatch) -> None:
    push = Reply.push

    def interrupted_after_two(self: Reply, token: int) -> None:
        if len(self.tokens) == 2:
            raise KeyboardInterrupt
        push(self, token)

    monkeypatch.setattr(Reply, "push", interrupted_after_two)
    done = inside("decode.max_new_tokens=9")
    assert done.code == 130 and done.out.startswith("One day") and done.out.endswith("\n")
    assert done.err.splitlines()[-1].startswith("strata: interrupted")


def test_a_sweep_gives_each_job_its_folder_and_goes_on_after_a_refusal(inside: Strata) -> None:
    words = ("prefill.super_chunk=16", "prefill.chunk=16", "decode.max_new_tokens=1")
    done = inside("-m", "prefill=chunked,layer_major", *words)
    assert done.code == 2
    folders = sorted(done.root.glob("multirun/*/*/status.json"))
    assert [json.loads(path.read_text())["state"] for path in folders] == ["refused", "done"]
    assert json.loads((folders[1].parent / "metrics.json").read_text())["decode"]["tokens"] == 1
    assert "prefill.super_chunk=16 does not go with prefill.order=chunked" in done.err


def test_logits_are_written_where_asked(inside: Strata) -> None:
    words = ("model=gguf", f"model.source={DATA / 'tiny-q2_0.gguf'}", "decode.max_new_tokens=1", "results.logits=all")
    ids = DATA / "oracle" / "tiny-q2_0.mid.npz"
    done = inside(*words, f"workload.token_ids_file={ids}")
    assert done.code == 0, done.err
    with np.load(ids) as oracle:
        want, got = oracle["logits"], np.load(done.folder / "logits.npy")
    assert got.shape == want.shape
    # transformers with itself on other chunks is at 4.5e-7; 1e-3 is what a float32 path may differ
    assert np.linalg.norm(got - want) / np.linalg.norm(want) <= 1e-3
