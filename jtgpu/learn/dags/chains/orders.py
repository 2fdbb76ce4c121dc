"""Order MCMC: chains over orders of the variables, and the probabilities of arcs that they estimate.

The target is the order-modular posterior: a graph's weight counts once for each order that it allows. A chain is a
function of seed and number: `start_chains` makes the first state, and `run_chains` returns the state after more steps.
Stopping, progress and checkpoints belong to the caller.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....util.arrays import Floats, Ints
from ....util.loops import loops
from ....util.system import cores
from ..set_tables import ANY, draw_sets
from .diagnostics import Block

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidate_tables import CandidateTables
    from ..chain_records import SetTables
    from ..constraints import ArcLimits

_orders = loops("jtgpu.learn.dags.loops.orders")
_outer_sets = loops("jtgpu.learn.dags.loops.outer_sets")

OUTER_THIN = 4  # steps between two samples, for each variable, of chains with outer sets
SHARE_OF_FULL = 4  # variables for each that is relocated by the full weights between two samples


class OrderSampler(NamedTuple):
    """Tables, seed and shares of the moves, which all chains share."""

    tables: CandidateTables
    sums: Floats  # (n, 2**k) ``tables.sums()``
    hits: Floats  # (n, k, 2**(k - 1)) ``tables.hits()``; with an empty last axis, no arcs are counted
    seed: int = 0
    share_of_swaps: float = 0.5  # share of the steps that swap neighbours; the others relocate a variable
    first_chain: int = 0  # number of the first chain, where others run elsewhere


class OrderChains(NamedTuple):
    """The state of C chains."""

    order: Ints  # (C, n)
    # (C, n, n) sums over the samples of the probability of each arc [parent, child], in units of 2**-32
    arcs: NDArray[np.uint64]
    # n_steps, n_samples: Of each chain
    n_steps: int
    n_samples: int


def start_order(constraints: ArcLimits, chain: int, seed: int) -> Ints:
    """The start order of a chain; required arcs point forward. Chain 0 starts from the order of the variables."""
    if not chain:
        return constraints.first_order()
    n = len(constraints.required)
    return constraints.first_order(np.random.Generator(np.random.Philox(key=[seed, chain])).permutation(n))


def start_chains(constraints: ArcLimits, chains: int, seed: int = 0) -> OrderChains:
    """The first state of some chains."""
    order = np.array([start_order(constraints, chain, seed) for chain in range(chains)], np.int64)
    n = order.shape[1]
    return OrderChains(order, np.zeros((chains, n, n), np.uint64), 0, 0)


def run_chains(
    sampler: OrderSampler, state: OrderChains, n_steps: int, thin: int, *, threads: int | None = None
) -> tuple[OrderChains, Block]:
    """Continue all chains.

    The chains of two calls are those of one call with the sum of their steps, bit for bit, if `thin` divides the steps
    of the first.
    """
    # state: Not changed
    # n_steps: Of each chain
    # thin: A sample is taken after every `thin` steps
    # threads: The result does not depend on it
    n_chains, n = state.order.shape
    order, arcs, tables = state.order.copy(), state.arcs.copy(), sampler.tables
    trace, best = np.empty((n_chains, n_steps // thin)), np.empty((n_chains, n), np.int64)
    settings = np.array([1.0, 1.0, sampler.share_of_swaps])

    def run(chain: int) -> float:
        position, masks, values = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
        _orders.start_order(order[chain], tables.bit_in, sampler.sums, position, masks, values)
        own = order[chain], position, masks, values
        highest = _orders.order_steps(
            n_steps, state.n_steps, thin, sampler.first_chain + chain, np.uint64(sampler.seed), settings, *own,
            tables.bit_in, sampler.sums, tables.candidates, sampler.hits, arcs[chain], trace[chain], best[chain],
        )  # fmt: skip
        return float(highest)

    with ThreadPoolExecutor(threads or cores(), "jtgpu-learn") as pool:
        weights = np.array(list(pool.map(run, range(n_chains))))
    after = OrderChains(order, arcs, state.n_steps + n_steps, state.n_samples + n_steps // thin)
    return after, Block(trace, best, weights)


def run_corrected_chains(
    sampler: OrderSampler, tables: SetTables, state: OrderChains, n_steps: int, thin: int, *, threads: int | None = None
) -> tuple[OrderChains, Floats]:
    """Continue chains whose weights include outer sets; the trace is (C, samples)."""
    # the arguments are those of `run_chains`; here `thin` must divide the number of steps
    n_chains, n_samples = len(state.order), n_steps // thin
    order, arcs = state.order.copy(), state.arcs.copy()
    trace, settings = np.empty((n_chains, n_samples)), np.array([1.0, 1.0, sampler.share_of_swaps])

    def run(chain: int) -> None:
        _outer_sets.corrected_order_steps(
            n_samples, state.n_steps, thin, n_full(order.shape[1]), sampler.first_chain + chain,
            np.uint64(sampler.seed), settings, tables, sampler.tables.bit_in, order[chain], arcs[chain], trace[chain],
        )  # fmt: skip

    with ThreadPoolExecutor(threads or cores(), "jtgpu-learn") as pool:
        list(pool.map(run, range(n_chains)))
    return OrderChains(order, arcs, state.n_steps + n_samples * thin, state.n_samples + n_samples), trace


def block_of(trace: Floats, n: int) -> Block:
    """The record of steps of chains over orders, which draw no graphs."""
    return Block(trace, np.full((len(trace), n), ANY, np.int64), np.full(len(trace), -np.inf))


def steps_between_samples(tables: SetTables) -> int:
    """Steps of a chain between two samples."""
    return len(tables.candidates) * (OUTER_THIN if tables.outer_units.shape[1] else 1)


def n_full(n: int) -> int:
    """Variables that are relocated by the full weights between two samples."""
    return -(-n // SHARE_OF_FULL)


def graphs_of_orders(
    tables: SetTables,
    order: Ints,
    seed: int,
    number: int,
    threads: int | None = None,
    among: tuple[int, int] | None = None,
) -> Ints:
    """A graph that each order allows, drawn by its weight."""
    # order: (C, n)
    # seed, number: The random numbers are a function of both
    # among: (int, int): Number of the first chain, and of all chains, where others are elsewhere
    # returns (C, n) Bits of the possible parents.
    n_chains, n = order.shape
    first, n_all = among or (0, n_chains)
    before, totals = np.empty((n_chains, n), np.int64), np.empty((n_chains, n))
    for chain, own in enumerate(order):
        _outer_sets.totals_of_order(np.ascontiguousarray(own), tables, before[chain], totals[chain])
    u = np.random.Generator(np.random.Philox(key=[seed, number])).random((n, n_all))
    u = np.ascontiguousarray(u[:, first : first + n_chains])
    rows = np.ascontiguousarray(before.T)
    met, of_rows = np.full_like(rows, ANY), np.ascontiguousarray(totals.T)
    return np.ascontiguousarray(draw_sets(tables.masks, tables.weights, rows, met, of_rows, u, threads).T)
