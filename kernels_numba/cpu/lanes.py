"""Dot products of float32 rows in eight explicit lanes. Knows no model; the order of every sum is fixed here, for every caller.

A dot product runs in eight lanes (value k adds to lane k % 8 by one fused multiply-add), then the lanes are added
as ((0+4)+(2+6))+((1+5)+(3+7)). A tile computes several dot products at once for speed and each of them in just that order,
so a result never depends on the tile it was in, on the rows beside it, on the thread, or on the compiler's vectorizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8
_LANES = ir.VectorType(ir.FloatType(), LANES)


def dot_tile(num_rows: int, num_outs: int) -> Callable[..., None]:
    """An intrinsic: out[r * ldo + o] = x[r * depth : ] . w[o * depth : ] for a tile of rows r and outs o.

    Called as f(out, out_start, ldo, x, x_start, w, w_start, depth): flat contiguous float32 arrays, int64 positions of
    the tile's first values in them; depth is a multiple of LANES. Nothing is checked: the caller holds the bounds.
    """

    @intrinsic
    def tile(typingctx, out, out_start, ldo, x, x_start, w, w_start, depth):  # type: ignore[no-untyped-def]
        flat = types.Array(types.float32, 1, "C")
        sig = types.void(flat, types.int64, types.int64, flat, types.int64, flat, types.int64, types.int64)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            out, x, w = (context.make_array(flat)(context, builder, args[at]).data for at in (0, 3, 5))
            _, out_start, ldo, _, x_start, _, w_start, depth = args
            rows = [_row(builder, x, x_start, depth, r) for r in range(num_rows)]
            outs = [_row(builder, w, w_start, depth, o) for o in range(num_outs)]
            sums = _dots(builder, rows, outs, depth)
            for r in range(num_rows):
                at = builder.add(out_start, builder.mul(ldo, ldo.type(r)))
                for o in range(num_outs):
                    builder.store(sums[r * num_outs + o], builder.gep(out, [builder.add(at, at.type(o))]))
            return context.get_dummy_value()

        return sig, codegen

    return tile


def _row(builder: Any, base: Any, start: Any, depth: Any, index: int) -> Any:
    """Address of the row `index` rows of `depth` values after `start`."""
    return builder.gep(base, [builder.add(start, builder.mul(depth, depth.type(index)))])


def _dots(builder: Any, rows: list[Any], outs: list[Any], depth: Any) -> list[Any]:
    """The dot products of all rows with all outs, row-major, in the order that the module states."""
    zero = ir.Constant(_LANES, [0.0] * LANES)
    sums = [cgutils.alloca_once_value(builder, zero) for _ in range(len(rows) * len(outs))]  # type: ignore[no-untyped-call]
    with cgutils.for_range(builder, builder.sdiv(depth, depth.type(LANES))) as loop:
        at = builder.mul(loop.index, loop.index.type(LANES))
        _accumulate(builder, sums, [_load(builder, r, at) for r in rows], [_load(builder, o, at) for o in outs])
    return [_add_lanes(builder, builder.load(s)) for s in sums]


def _load(builder: Any, row: Any, at: Any) -> Any:
    pointer = builder.bitcast(builder.gep(row, [at]), _LANES.as_pointer())
    return builder.load(pointer, align=4)


def _accumulate(builder: Any, sums: list[Any], left: list[Any], right: list[Any]) -> None:
    kind = ir.FunctionType(_LANES, [_LANES] * 3)
    fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")  # type: ignore[no-untyped-call]
    for r, a in enumerate(left):
        for o, b in enumerate(right):
            slot = sums[r * len(right) + o]
            builder.store(builder.call(fma, [a, b, builder.load(slot)]), slot)


def _add_lanes(builder: Any, lanes: Any) -> Any:
    width = LANES
    while width > 1:
        width //= 2
        low, high = (ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(s, s + width))) for s in (0, width))
        lanes = builder.fadd(builder.shuffle_vector(lanes, lanes, low), builder.shuffle_vector(lanes, lanes, high))
    return builder.extract_element(lanes, ir.IntType(32)(0))
