"""`Iteration`: what one pass of a fit has shown."""

from __future__ import annotations

from typing import NamedTuple

from .text_table import record_repr


class Iteration(NamedTuple):
    """One pass over the rows."""

    number: int  # passes after the first one; those of extrapolations that were not taken count, too
    objective: float  # ln P(data) + ln prior, up to a constant; of the chunk in stepwise EM
    log_likelihood: float
    change: float  # of the objective; NaN is never used: 0 at the start
    seconds: float
    accelerated: bool = False  # whether the parameters were extrapolated

    def __repr__(self) -> str:  # a NamedTuple takes no assignment
        return record_repr(self)
