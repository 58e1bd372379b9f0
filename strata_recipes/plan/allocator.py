"""How torch's caching allocator cuts a card's memory, as far as a plan counts it or a tier must heed it."""

from __future__ import annotations

SMALLEST_BYTES = 512  # what a few bytes take
SEGMENT_BYTES = 2 << 20  # what is below 1 MiB lies in segments of so many, what is below 10 in segments of 20 MiB, the rest in whole ones
OWN_SEGMENT_BYTES = 10 << 20  # and from here on in a segment made for it
# At the peak one segment of each kind is partly free, and larger ones keep what other sizes leave of them: measured with a model of that
# allocator
GAP_BYTES, GAP_SHARE = 24 << 20, 10


def whole_segments(num_bytes: int) -> int:
    """What a large piece takes of the card in any case.

    Asked for in whole, the rest of its last segment is part of it: a small piece that outlives it would lie there else, and the card would
    get nothing of it back.
    """
    return num_bytes if num_bytes < OWN_SEGMENT_BYTES else -(-num_bytes // SEGMENT_BYTES) * SEGMENT_BYTES
