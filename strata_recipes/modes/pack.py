"""mode=pack: writes the model's pack to model.pack, or to the cache."""

from __future__ import annotations

from strata_recipes.config.schema import Config
from strata_recipes.modes.models import write_pack
from strata_recipes.pack.cache import pack_folder
from strata_recipes.pack.reader import open_pack
from strata_recipes.units import gib


def pack(config: Config, overrides: list[str]) -> int:
    """Builds the pack and opens it once, so that what is reported is what lies there."""
    folder = pack_folder(config.model)
    write_pack(config.model, folder)
    with open_pack(folder) as built:
        index = built.index
        experts = f"{index.geometry.total_experts:,} experts, {gib(index.experts_file_bytes)}"
        print(f"packed {index.name}: {experts}; dense {gib(index.dense_bytes)}; pack id {index.pack_id}")
        for note in index.notes:
            print(f"note: {note}")
    print(f"pack: {folder}")
    return 0
