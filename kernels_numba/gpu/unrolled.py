"""Steps that a kernel takes one by one without a loop, so that what they keep in local arrays lies in registers. Knows no op.

The compiler unrolls short loops by itself; a body of more than about 300 instructions it leaves a loop.
"""

# mypy: no-check-untyped-defs
from __future__ import annotations

from typing import Any

from kernels_numba.device import inline


def unrolled(count: int, act: Any) -> Any:
    """Device function (..): act(i, ..) for i = 0, 1, .. count - 1, from one to eight of them."""
    assert 1 <= count <= 8

    @inline
    def acts(*operands):  # type: ignore[no-untyped-def]
        act(0, *operands)
        if count > 1:
            act(1, *operands)
        if count > 2:
            act(2, *operands)
        if count > 3:
            act(3, *operands)
        if count > 4:
            act(4, *operands)
        if count > 5:
            act(5, *operands)
        if count > 6:
            act(6, *operands)
        if count > 7:
            act(7, *operands)

    return acts
