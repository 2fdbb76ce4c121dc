"""Networks of states and numbers: conditional Gaussians, answered exactly.

`jtgpu.MixedNetwork` makes one, ``net.compile()`` a `MixedTree`, and `jtgpu.learn.fit` with ``continuous=`` fits one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..util.late_imports import public_names

if TYPE_CHECKING:
    from .information import NumberObservation
    from .results import MixedCasePosteriors, MixedPosteriors, NumberColumns, NumberPosterior
    from .sampling import MixedSamples
    from .tree import MixedTree

__all__ = [
    "MixedCasePosteriors", "MixedPosteriors", "MixedSamples", "MixedTree", "NumberColumns",
    "NumberObservation", "NumberPosterior",
]  # fmt: skip

__getattr__, __dir__ = public_names(__name__, {
    "information": "NumberObservation",
    "results": "MixedCasePosteriors MixedPosteriors NumberColumns NumberPosterior",
    "sampling": "MixedSamples", "tree": "MixedTree",
})  # fmt: skip
