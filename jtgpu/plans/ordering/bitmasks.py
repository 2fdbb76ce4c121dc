"""Sets of vertices as Python ints: bit u of ``masks[v]`` says whether u and v are neighbours.

Up to some thousand vertices this is the fastest representation in pure Python, and it needs no compiler.
"""

from __future__ import annotations


def bits(mask: int) -> list[int]:
    """Positions of the set bits, ascending."""
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out
