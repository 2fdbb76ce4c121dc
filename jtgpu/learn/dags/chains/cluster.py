"""`ClusterEngine`: blocks of chains as tasks on a cluster, with the bits of chains in one process.

Chains have global numbers, on which their random numbers depend. The tables are sent to each machine once; a task is a
block of chains with their states, and a round of steps. A task whose worker is lost runs again.
"""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....util import late_imports
from .engines import Block, Engine, OrderEngine, PartitionEngine, TemperedEngine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidate_tables import CandidateTables
    from ..chain_records import SetTables

COMMON = ("betas",)  # arrays of states that all chains share


class EngineSpec(NamedTuple):
    """How to make an engine, here or on a worker."""

    kind: str  # {"partitions", "orders", "tempered"}
    tables: CandidateTables | None  # of ``"orders"``
    chain_tables: SetTables
    seed: int
    n_chains: int
    replicas: int = 0  # of ``"tempered"``

    def engine(self, threads: int | None, first_chain: int = 0) -> Engine:
        """The engine of the chains from a number on."""
        if self.kind == "orders":
            assert self.tables is not None
            return OrderEngine(self.tables, self.chain_tables, self.seed, threads, first_chain, self.n_chains)
        if self.kind == "tempered":
            return TemperedEngine(self.chain_tables, self.seed, threads, first_chain, self.replicas)
        return PartitionEngine(self.chain_tables, self.seed, threads, first_chain)


class _Task(NamedTuple):
    """Some chains, and how far they run."""

    first_chain: int
    state: Any
    n_steps: int
    n_blocks: int


_of_worker: dict[str, EngineSpec] = {}  # the specification of the present run, in a worker


def _run_task(shared: tuple[str, EngineSpec], task: _Task, threads: int) -> tuple[Any, list[Block]]:
    key, spec = shared
    if key not in _of_worker:
        _of_worker.clear()
        _of_worker[key] = _writable(spec)  # compiled loops do not take the read-only arrays of the object store
    engine = _of_worker[key].engine(threads, task.first_chain)
    return engine.run_blocks(_writable(task.state), task.n_steps, task.n_blocks)


def _writable(record: Any) -> Any:
    """Copies of the arrays of a NamedTuple, and of those within it."""
    found = {}
    for name, value in record._asdict().items():
        if isinstance(value, np.ndarray):
            found[name] = np.array(value)
        elif isinstance(value, tuple) and hasattr(value, "_asdict"):
            found[name] = _writable(value)
    return record._replace(**found)


class ClusterEngine(Engine):
    """An engine whose chains run on a cluster."""

    def __init__(self, spec: EngineSpec, cluster: Any):
        self._spec, self._cluster = spec, cluster
        self._here = spec.engine(None)
        self._runner: Any = None
        self.name, self.thin, self.block_steps = self._here.name, self._here.thin, self._here.block_steps
        self.first_rounds, self.counts_moves = self._here.first_rounds, self._here.counts_moves
        self.confirmation = self._here.confirmation

    def start(self, first: Any) -> Any:
        return self._here.start(first)

    def run_blocks(self, state: Any, n_steps: int, n_blocks: int) -> tuple[Any, list[Block]]:
        if self._runner is None:
            key = uuid.uuid4().hex
            self._runner = late_imports.cluster().TaskRunner(self._cluster, _run_task, (key, self._spec))
        n_chains = len(state.arcs)
        parts = min(self._runner.workers, n_chains)
        bounds = [n_chains * i // parts for i in range(parts + 1)]
        tasks = [_Task(a, _some(state, a, b), n_steps, n_blocks) for a, b in itertools.pairwise(bounds)]
        states, blocks = zip(*self._runner.run(tasks), strict=True)
        return _joined(states), [
            Block(*map(np.concatenate, zip(*of_parts, strict=True))) for of_parts in zip(*blocks, strict=True)
        ]

    def graphs(self, state: Any) -> NDArray[np.int64]:
        return self._here.graphs(state)

    def restored(self, fields: dict[str, Any]) -> Any:
        return self._here.restored(fields)

    def after_round(self, state: Any, n_rounds: int) -> Any:
        return self._here.after_round(state, n_rounds)

    def release(self) -> None:
        """Disconnect from the cluster."""
        if self._runner is not None:
            self._runner.close()
        self._runner = None


def _some(state: Any, begin: int, end: int) -> Any:
    """The state of some chains."""
    return state._replace(
        **{
            name: value[begin:end]
            for name, value in state._asdict().items()
            if isinstance(value, np.ndarray) and name not in COMMON
        }
    )


def _joined(states: Any) -> Any:
    """The state of all chains."""
    return states[0]._replace(
        **{
            name: np.concatenate([getattr(state, name) for state in states])
            for name, value in states[0]._asdict().items()
            if isinstance(value, np.ndarray) and name not in COMMON
        }
    )
