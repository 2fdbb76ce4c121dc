"""Dynamic networks: exact answers about sequences of any length.

`jtgpu.DynamicNetwork` makes one, and ``dyn.compile()`` a `DynamicTree`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..util.late_imports import public_names

if TYPE_CHECKING:
    from .numbers import MixedDynamicTree, MixedSequencePosteriors
    from .results import SequenceExplanations, SequencePosteriors, SequenceStates
    from .stream import MixedStream, SliceNumber, Stream
    from .tree import DynamicTree

__all__ = [
    "DynamicTree", "MixedDynamicTree", "MixedSequencePosteriors", "MixedStream", "SequenceExplanations",
    "SequencePosteriors", "SequenceStates", "SliceNumber", "Stream",
]  # fmt: skip

__getattr__, __dir__ = public_names(__name__, {
    "numbers": "MixedDynamicTree MixedSequencePosteriors",
    "results": "SequenceExplanations SequencePosteriors SequenceStates", "stream": "MixedStream SliceNumber Stream",
    "tree": "DynamicTree",
})  # fmt: skip
