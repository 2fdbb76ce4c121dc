"""The data that a worker needs to answer cases, pickled and sent once: a plan, a backend's options and a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..cases.options import TableOptions
from ..cases.query import TableQuery
from ..cases.solver import Solver
from ..errors import JtgpuError
from ..inference.network_plan import NetworkPlan
from ..inference.tree import JunctionTree
from ..util.version import __version__
from .connect import Share

if TYPE_CHECKING:
    from ..util.options import BackendName


@dataclass(frozen=True)
class WorkerSpec:
    """How a worker answers cases."""

    plan: NetworkPlan
    share: Share  # resources and backend of each worker
    options: dict[str, Any]  # options of the backend
    query: TableQuery
    table: TableOptions
    version: str = __version__  # version of jtgpu in the process that leads the run

    def compile(self) -> JunctionTree:
        """A tree, on the worker; raises `JtgpuError` if the worker has another version of jtgpu."""
        if self.version != __version__:
            raise JtgpuError(f"this worker has jtgpu {__version__}, but the run was started by jtgpu {self.version}")
        tree: JunctionTree = self.plan.compile(cast("BackendName", self.share.backend), **self.options)
        return tree

    def solver(self, tree: JunctionTree | None = None) -> Solver:
        """A solver, on the worker."""
        return Solver(tree or self.compile(), self.query, self.table)


def plan_of(plan: NetworkPlan | JunctionTree, backend: str) -> tuple[NetworkPlan, str, dict[str, Any]]:
    """Plan, backend and options; a tree provides its own."""
    if isinstance(plan, JunctionTree):
        return plan.plan, plan.backend, plan.options
    return plan, backend, {}
