"""Block sizes of the ggml types that this build sizes but does not read: for tensors that are skipped, and for clear refusals."""

from __future__ import annotations

from kernels_numba.formats import BY_GGML_TYPE, FORMATS

# type number: name, values a block, bytes a block
_OTHERS: dict[int, tuple[str, int, int]] = {
    3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66), 19: ("IQ1_S", 256, 50), 24: ("I8", 1, 1), 25: ("I16", 1, 2),
    26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
}  # fmt: skip


def type_name(number: int) -> str:
    """`Q4_K`, or `type 99` where it is not known."""
    if number in BY_GGML_TYPE:
        return BY_GGML_TYPE[number].name
    return _OTHERS[number][0] if number in _OTHERS else f"type {number}"


def stored_bytes(number: int, shape: tuple[int, ...]) -> int | None:
    """Bytes of a tensor; None for an unknown type; ValueError where a block does not divide a row."""
    if number in BY_GGML_TYPE:
        form = BY_GGML_TYPE[number]
        name, values, size = form.name, form.block_values, form.block_bytes
    elif number in _OTHERS:
        name, values, size = _OTHERS[number]
    else:
        return None
    row = shape[-1] if shape else 1
    if row % values:
        raise ValueError(f"{name} holds {values} values a block, which does not divide a row of {row:,}")
    count = 1
    for length in shape:
        count *= length
    return count // values * size


def readable() -> str:
    """The formats that can be read, for a refusal."""
    return ", ".join(FORMATS)
