"""mode=run: packs on the first use, plans, starts, reads the prompt, writes the reply, and leaves the figures in a folder."""

from __future__ import annotations

import sys
from contextlib import ExitStack

from strata_recipes.config.choices import EmulateRam
from strata_recipes.config.schema import Config
from strata_recipes.engine.session import Session
from strata_recipes.engine.watching import Hooks
from strata_recipes.machine import memory
from strata_recipes.modes.clock import Clock
from strata_recipes.modes.emulated import beside_ballast, run_in_group
from strata_recipes.modes.holds import check_holds
from strata_recipes.modes.interrupt import interrupted, raise_if_interrupted
from strata_recipes.modes.learned import check_place, learning
from strata_recipes.modes.measured import drafts_line, measured
from strata_recipes.modes.models import model_facts, ready_pack
from strata_recipes.modes.prepare import Prepared, prepare, recorded
from strata_recipes.modes.progress import console, copy_bar, token_bar
from strata_recipes.modes.reply import Reply
from strata_recipes.pack.reader import Pack
from strata_recipes.plan.notes import replaced
from strata_recipes.plan.runnable import runnable
from strata_recipes.results.figures import emulation
from strata_recipes.results.record import ResultsFolder
from strata_recipes.results.report import final_table
from strata_recipes.results.samples import Sampler
from strata_recipes.results.status import DONE
from strata_recipes.text.tokenizer import Tokenizer


def run(config: Config, overrides: list[str]) -> int:
    """One whole run, where need be as on a PC with less RAM: text on stdout as it comes, then one table."""
    check_place(config)
    if config.emulate.ram is EmulateRam.cgroup:
        return run_in_group(config, overrides)
    clock = Clock()
    with model_facts(config.model) as facts:  # before a byte is packed: what is refused is refused at once
        prepared = prepare(config, facts)
        runnable(prepared.plan)
        check_holds(prepared.plan, facts.index, memory.available())
    with recorded(prepared, overrides) as folder, ready_pack(config.model) as pack, beside_ballast(prepared, pack.index):
        carry_out(prepared, pack, folder, clock)
    return 0


def carry_out(prepared: Prepared, pack: Pack, folder: ResultsFolder, clock: Clock) -> None:
    """The run of a plan, once it is known what RAM is left to it."""
    check_holds(prepared.plan, pack.index, memory.available())
    raise_if_interrupted()  # imports may have swallowed the exception
    folder.started()
    _work(prepared, pack, folder, clock)


def _work(prepared: Prepared, pack: Pack, folder: ResultsFolder, clock: Clock) -> None:
    plan, prompt = prepared.plan, prepared.prompt
    assert prompt is not None, "a pack can read its own prompt"
    _tell(prepared, folder)
    reply = Reply(None if pack.tokenizer_path is None else Tokenizer(pack.tokenizer_path), sys.stdout, clock)
    with ExitStack() as opened:
        sampler = opened.enter_context(Sampler(lambda: memory.available().num_bytes))
        advance = opened.enter_context(copy_bar())
        hooks = Hooks(progress=advance, note=lambda sentence: _note(sentence, folder), log=folder.log)
        interpreter_s = clock.seconds()
        session = opened.enter_context(Session(plan, pack, order=prepared.order, hooks=hooks))
        ready_s = clock.seconds()
        folder.log(f"ready after {ready_s:.3f} s: {plan.vram_slots} slots, {plan.ram_blobs} RAM blobs, {plan.file_blobs} in the file")
        checksums = session.checksums() if plan.experts.verify else None
        with token_bar("reading", len(prompt.ids)) as on_chunk:
            read = session.prompt(prompt.ids, logits=plan.output.logits, on_chunk=on_chunk, cancelled=interrupted)
        folder.log(f"read {read.figures.tokens} tokens in {read.figures.seconds:.3f} s")
        try:
            with learning(prepared, pack, session, folder.log, hooks.note):
                written = session.generate(on_token=reply.push)
        finally:
            reply.end()  # what ends it early is then told in a line of its own
        folder.log(f"wrote {written.figures.tokens} tokens in {written.figures.seconds:.3f} s, stopped by {written.stop.value}")
        if plan.decode.draft_tokens:
            folder.log(drafts_line(written.figures))
        outcome = measured(prepared, session, read, written, sampler, (interpreter_s, ready_s), reply, checksums)
    folder.write_after(plan, outcome, DONE)
    console().print(final_table(plan, outcome.metrics, str(folder.path)))


def _tell(prepared: Prepared, folder: ResultsFolder) -> None:
    """Before the work: what is emulated, what comes out otherwise than stated, and in the log the plan's notes."""
    line = emulation(prepared.emulated)
    for sentence in (*([line] if line else []), *replaced(prepared.config, prepared.plan)):
        _note(sentence, folder)
    for note in prepared.plan.notes:
        folder.log(f"note: {note}")


def _note(sentence: str, folder: ResultsFolder) -> None:
    folder.log(sentence)
    print(f"note: {sentence}", file=sys.stderr, flush=True)
