"""Steps that a kernel takes one by one without a loop, so that what they keep in local arrays lies in registers. Knows no op.

The compiler unrolls short loops by itself; a body of more than about 300 instructions it leaves a loop.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

from typing import Any

from kernels_numba.device import inline


def unrolled(count: int, act: Any) -> Any:
    """Device function (..): act(i, ..) for i = 0, 1, .. count - 1."""
    if count == 0:
        return _nothing
    before, last = unrolled(count - 1, act), count - 1

    @inline
    def acts(*operands):  # type: ignore[no-untyped-def]
        before(*operands)
        act(last, *operands)

    return acts


@inline
def _nothing(*operands):  # type: ignore[no-untyped-def]
    return
