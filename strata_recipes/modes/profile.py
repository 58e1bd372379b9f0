"""mode=profile: reads texts and counts which experts their tokens choose; the profile that it writes says which are hottest."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strata_recipes.config.choices import Template
from strata_recipes.config.dumping import config_hash
from strata_recipes.config.schema import Config, Workload
from strata_recipes.engine.session import Session
from strata_recipes.engine.watching import Hooks
from strata_recipes.errors import ConfigError, PackError
from strata_recipes.machine import memory
from strata_recipes.modes.holds import check_holds
from strata_recipes.modes.interrupt import interrupted
from strata_recipes.modes.models import ready_pack
from strata_recipes.modes.prepare import prepare, recorded
from strata_recipes.modes.progress import token_bar
from strata_recipes.pack.input_file import stated_as
from strata_recipes.pack.profile import PROFILE_FILE, load_counts, write_profile
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.runnable import runnable
from strata_recipes.results.atomic import ROOT_REMEDY, check_place, write_binary
from strata_recipes.results.status import DONE
from strata_recipes.simulate.heat import HOT_SHARE, hot_share, skew_of
from strata_recipes.text.prompt import Prompt, prompt_ids

REMEDY = "set profile.out to a file in a folder with room"


def profile(config: Config, overrides: list[str]) -> int:
    """Each file is one prompt, its tokens as they stand; counts of an earlier profile are added."""
    if not config.profile.files:
        raise ConfigError("mode=profile needs texts to read: add for example 'profile.files=[a.txt,b.txt]'")
    out = None if config.profile.out is None else Path(config.profile.out).expanduser()
    if out is not None:
        check_place(out, f"profile.out={config.profile.out}")
    with ready_pack(config.model) as pack:
        works = [Workload(text_file=name, template=Template.none) for name in config.profile.files]
        prompts = [prompt_ids(work, pack, "profile.files") for work in works]
        counts = _earlier(config, pack)
        longest = max(zip(prompts, works, strict=True), key=lambda pair: len(pair[0].ids))[1]
        prepared = prepare(dataclasses.replace(config, workload=longest), pack)
        # recorded is what was asked for, so that folder and hash are the replay's too
        asked = dataclasses.replace(prepared.config, workload=config.workload)
        prepared = dataclasses.replace(prepared, config=asked, folder_hash=config_hash(config))
        runnable(prepared.plan)
        check_holds(prepared.plan, pack.index, memory.available())
        with recorded(prepared, overrides) as folder:
            folder.started()
            with Session(prepared.plan, pack, order=prepared.order, hooks=Hooks(log=folder.log)) as session:
                counts = counts + routed(session, prompts, counts.shape)
            path = folder.path / PROFILE_FILE if out is None else out
            write_binary(path, lambda file: write_profile(file, counts, pack.index), REMEDY if out else ROOT_REMEDY)
            tokens = sum(len(prompt.ids) for prompt in prompts)
            said = f"{tokens:,} tokens of {len(prompts)} texts, {counts.sum():,} choices in all; {_heat(counts, pack)}"
            folder.log(said)
            folder.end(DONE, prepared.plan)
    print(said)
    print(f"use it: experts.profile={path}")
    return 0


def routed(session: Session, prompts: list[Prompt], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """How often each (layer, expert) is chosen by the prompts' tokens."""
    counts = np.zeros(shape, np.int64)

    def add(layer: int, experts: NDArray[np.int64]) -> None:
        counts[layer] += np.bincount(experts.reshape(-1), minlength=shape[1])

    for prompt in prompts:
        with token_bar(f"reading {prompt.source}", len(prompt.ids)) as on_chunk:
            session.prompt(prompt.ids, on_chunk=on_chunk, cancelled=interrupted, on_routed=add)
    return counts


def _earlier(config: Config, pack: Pack) -> NDArray[np.int64]:
    geometry = pack.index.geometry
    if config.profile.merge is None:
        return np.zeros((geometry.num_layers, geometry.num_experts), np.int64)
    path = Path(os.path.expanduser(config.profile.merge))
    with stated_as("profile.merge", config.profile.merge):
        counts = load_counts(path, pack.index)
        if counts is None:
            raise PackError(f"{path} says which experts are hottest, but not by how much: only a profile with `counts` can be merged")
    return counts


def _heat(counts: NDArray[np.int64], pack: Pack) -> str:
    skew = skew_of(counts, pack.index.geometry.top_k)
    return f"the hottest {HOT_SHARE:.0%} of a layer's experts took {hot_share(counts):.0%} of them, a router skew of {skew:g}"
