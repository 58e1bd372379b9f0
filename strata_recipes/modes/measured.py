"""From what engine and sampler counted to metrics.json and identity.json. Measures nothing itself."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from strata_recipes.engine.decode import DecodeFigures, DecodeResult
from strata_recipes.engine.prefill import PrefillResult
from strata_recipes.engine.session import Checksums, Session
from strata_recipes.modes.prepare import Prepared
from strata_recipes.modes.reply import Reply
from strata_recipes.results.identity import Identity, first_logits_md5, tier_checksum, tokens_md5
from strata_recipes.results.metrics import (
    DecodeMetrics,
    ExpertsMetrics,
    MemoryMetrics,
    Metrics,
    PredictedMetrics,
    PrefillMetrics,
    StartupMetrics,
)
from strata_recipes.results.record import Outcome
from strata_recipes.results.samples import Sampler

T = TypeVar("T")


def measured(
    prepared: Prepared,
    session: Session,
    read: PrefillResult,
    written: DecodeResult,
    sampler: Sampler,
    at_s: tuple[float, float],
    reply: Reply,
    checksums: tuple[Checksums, Checksums] | None,
) -> Outcome:
    """Everything a run leaves behind. `at_s`: seconds since the process began, at the session's start and when it was ready."""
    plan, (interpreter_s, ready_s) = prepared.plan, at_s
    slots, ram = (tier_checksum(found) for found in checksums) if checksums else (None, None)
    metrics = Metrics(
        ready_s=ready_s,
        first_token_s=reply.first_token_s,
        startup=dataclasses.replace(
            _named(StartupMetrics, session.started.figures),
            interpreter_s=interpreter_s,
            device_s=session.took.device_s,
            dense_s=session.took.dense_s,
            kernels_s=session.took.kernels_s,
        ),
        memory=_memory(session, sampler),
        experts=_placed(session),
        prefill=_named(PrefillMetrics, read.figures),
        decode=_named(DecodeMetrics, written.figures),
        predicted=_named(PredictedMetrics, plan.predicted),
        emulated=prepared.emulated,
    )
    identity = Identity(tokens_md5(written.tokens), first_logits_md5(read.last), slots, ram, plan.model.pack_id)
    return Outcome(metrics, identity, sampler.samples, read.logits, reply.to_json())


def drafts_line(figures: DecodeFigures) -> str:
    """What drafts brought, for the log."""
    share = f" ({figures.accepted / figures.drafted:.1%})" if figures.drafted else ""
    return f"drafted {figures.drafted} tokens, {figures.accepted} of them right{share}: {figures.steps} passes over the layers"


def _placed(session: Session) -> ExpertsMetrics:
    """Where experts are: a blob that could not be read into RAM is the file's."""
    plan, in_file = session.plan, session.started.in_file
    return ExpertsMetrics(plan.vram_slots, plan.ram_blobs + plan.file_blobs - in_file, in_file)


def _memory(session: Session, sampler: Sampler) -> MemoryMetrics:
    sampler.samples.append(sampler.take())
    lowest = min(sample.available_bytes for sample in sampler.samples)
    peak = max(sample.rss_bytes for sample in sampler.samples)
    return dataclasses.replace(_named(MemoryMetrics, session.memory()), lowest_available_bytes=lowest, peak_rss_bytes=peak)


def _named(kind: type[T], figures: Any) -> T:
    """The figures that metrics.json has a key for; the engine counts more."""
    names = [f.name for f in dataclasses.fields(kind) if hasattr(figures, f.name)]  # type: ignore[arg-type]
    return kind(**{name: getattr(figures, name) for name in names})
