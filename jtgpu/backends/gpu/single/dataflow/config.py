"""How the dataflow engine lays out its work: the choices that its time model does not get right for every network."""

from __future__ import annotations

from dataclasses import dataclass

MAX_WARPS = 16  # of a block, of which a multiprocessor holds one: MAX_WARPS of dataflow.cu


@dataclass(frozen=True)
class DataflowConfig:
    """How the dataflow engine lays out its work."""

    warps: int = MAX_WARPS  # warps of a block, at most `MAX_WARPS`. Fewer wait less for each other's loads.
    # Whether longer batches of loads are among the tilings. None: if the simulation predicts a gain of a tenth.
    long_batches: bool | None = None
    # Warps of `MAX_WARPS` that only the critical path uses. None: whichever number the simulation finds quicker.
    reserved_warps: int | None = None
    # critical_weight, other_weight: Weight of the whole GPU's time against a contraction's own, on the critical path
    #     and elsewhere
    critical_weight: float = 3.0
    other_weight: float = 8.0
    tensor_blocks: bool = False  # whether blocks for the tensor cores are among the tilings


DEFAULT = DataflowConfig()
