"""The tree of a command: a network, planned and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from .planning import PlanOptions
from .progress import status
from .running import COMPILING, RunOptions


@contextmanager
def compiled(
    net: DiscreteModel, file: str, plan: PlanOptions, run: RunOptions
) -> Iterator[tuple[JunctionTree, Callable[[str], None]]]:
    """Plan and compile a network, with a status line on stderr."""
    # file: The file that it was read from
    # run: The plan has to fit in the memory of the devices named here
    # yields (JunctionTree, callable): The tree, closed on exit, and the function that sets the text of the status line.
    with status("planning", run.progress) as step:
        made = plan.make(net, file, run)
        step(COMPILING)
        with run.compile(made, step) as tree:
            step("propagating")
            yield tree, step
