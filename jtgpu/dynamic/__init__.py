"""Dynamic networks: exact answers about sequences of any length.

`jtgpu.DynamicNetwork` makes one, and ``dyn.compile()`` a `DynamicTree`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..util.late_imports import public_names

if TYPE_CHECKING:
    from .numbers import MixedDynamicTree, MixedSequencePosteriors
    from .results import SequenceExplanations, SequencePosteriors, SequenceStates
    from .stream import Stream
    from .tree import DynamicTree

__all__ = [
    "DynamicTree", "MixedDynamicTree", "MixedSequencePosteriors", "SequenceExplanations", "SequencePosteriors",
    "SequenceStates", "Stream",
]  # fmt: skip

__getattr__, __dir__ = public_names(__name__, {
    "numbers": "MixedDynamicTree MixedSequencePosteriors",
    "results": "SequenceExplanations SequencePosteriors SequenceStates", "stream": "Stream", "tree": "DynamicTree",
})  # fmt: skip
