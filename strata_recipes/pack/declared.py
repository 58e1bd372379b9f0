"""The index of a model that is only stated in a config: geometry and sizes, no weights. Opens nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

from kernels_numba.formats import FORMATS
from strata_recipes.config import schema
from strata_recipes.errors import ConfigError, PackError
from strata_recipes.pack.geometry import check_geometry
from strata_recipes.pack.index import Geometry, PackIndex
from strata_recipes.pack.layout import dense_wanted, layer_experts, ngram_wanted, tensor

_NGRAM = ("ngram_size", "ngram_heads", "ngram_width", "ngram_conv", "ngram_rows")


def declared_index(model: schema.Model) -> PackIndex:
    """The PackIndex of a declared model, for plans; ConfigError names every key that is missing or wrong."""
    geometry = check_stated(stated_geometry(model), model, hashed=False)
    notes = (model.note,) if model.note else ()
    return stated_index(model, geometry, "declared", notes)


def stated_index(model: schema.Model, geometry: Geometry, pack_id: str, notes: tuple[str, ...]) -> PackIndex:
    """Sizes and offsets that follow from a stated geometry and stated formats; exact tensors (norms, routers) are F32."""
    formats, dense = expert_formats(model, geometry.num_layers), model.dense or ""
    wanted, table = dense_wanted(geometry), ngram_wanted(geometry)
    odd = [w.name for w in wanted if not w.exact and _row_format(w.shape, dense) != dense]
    if odd:
        notes += (f"{len(odd)} dense tensors are F16, because no {dense} block divides their rows: {odd[0]}, ..",)
    try:
        return PackIndex(
            name=model.name,
            pack_id=pack_id,
            geometry=geometry,
            layers=layer_experts(geometry, formats),
            dense=tuple(tensor(w, "F32" if w.exact else _row_format(w.shape, dense)) for w in wanted),
            ngram=tensor(table, ngram_format(geometry)) if table else None,
            notes=notes,
        )
    except ValueError as error:
        raise ConfigError(f"model {model.name!r}: its experts cannot be stored so: {error}; choose another format or width") from error


def stated_geometry(model: schema.Model) -> Geometry:
    """Geometry of the config; the n-gram hash is not stated, as it sizes nothing."""
    stated = {f.name: getattr(model.geometry, f.name) for f in dataclasses.fields(schema.Geometry)}
    layers = tuple(stated.pop("ngram_layers") or ())
    stated |= {name: stated[name] or 0 for name in _NGRAM} if not layers else {}
    missing = [f"model.geometry.{name} is not stated" for name, value in stated.items() if value is None]
    missing += [] if model.experts else ["model.experts is empty: state a format for every layer"]
    missing += [] if model.dense else ["model.dense is not stated: give the format of the dense tensors, for example Q8_0"]
    if missing:
        raise ConfigError([f"model {model.name!r}: {text}" for text in missing])
    stated |= {"rope_sections": tuple(stated["rope_sections"])}
    stated |= {name: float(stated[name]) for name in ("norm_eps", "rope_base")}
    return Geometry(**stated, ngram_layers=layers, **_NO_HASH)


_NO_HASH: dict[str, Any] = {"ngram_eos": 0, "ngram_multipliers": (), "ngram_offsets": (), "ngram_vocab_sizes": ()}


def check_stated(geometry: Geometry, model: schema.Model, hashed: bool = True) -> Geometry:
    """The geometry of a config, held against every sum that the engine relies on."""
    try:
        return check_geometry(geometry, f"model.geometry of {model.name!r}", hashed)
    except PackError as error:
        raise ConfigError(str(error)) from error


def expert_formats(model: schema.Model, num_layers: int) -> list[tuple[str, str, str]]:
    """(gate, up, down) a layer; ConfigError where the runs do not sum to the layers, or a format is unknown."""
    stated = sum(run.layers for run in model.experts)
    named = {name for run in model.experts for name in (run.gate, run.up, run.down)} | ({model.dense} if model.dense else set())
    faults = [f"model {model.name!r}: {name!r} is no format: use one of {', '.join(FORMATS)}" for name in sorted(named - set(FORMATS))]
    if stated != num_layers:
        faults.append(
            f"model {model.name!r}: model.experts states formats for {stated:,} layers, model.geometry.num_layers is {num_layers:,}"
        )
    if faults:
        raise ConfigError(faults)
    return [(run.gate, run.up, run.down) for run in model.experts for _ in range(run.layers)]


def ngram_format(g: Geometry) -> str:
    """The table is published in 4.5 bits a value (28.8 GB for 51.2e9 values); rows that no block divides are F16."""
    return "Q4_0" if g.ngram_width % FORMATS["Q4_0"].block_values == 0 else "F16"


def _row_format(shape: tuple[int, ...], dense: str) -> str:
    """The dense format, or F16 for the few tensors whose rows its block does not divide, as the public converter does."""
    return dense if shape[-1] % FORMATS[dense].block_values == 0 else "F16"
