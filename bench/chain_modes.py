"""Where chains over graphs disagree: the arcs and parent sets by chain, the modes, and what separates them.

    python bench/chain_modes.py hailfinder --cases 1000 --seconds 60              on all cores
    python bench/chain_modes.py hailfinder --cases 1000 --seconds 60 --blocks 50
    python bench/chain_modes.py alarm --cases 1000 --seconds 5 --threads 1        a short check

Chains are of one mode if no arc differs by more than a half. Of the best graph of each mode the report has ln weight
less that of the best, links and families that differ, the distance of the equivalence classes, and what the families
alone change whose arcs differ by more than a half: ln weight and H(child | parents) of each, near 0 where the child is
almost a function of its parents.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np

import jtgpu
from jtgpu.learn.dags.posterior.averaging import arcs_of
from jtgpu.model.equivalence import structural_hamming_distance

SHOWN = 25


def modes_of(means: Any) -> list[list[int]]:
    """Groups of chains whose arcs agree to a half, from the probability of each arc in each chain, (C, n, n)."""
    groups: list[list[int]] = []
    for c, own in enumerate(means):
        near = [g for g in groups if any(np.abs(own - means[d]).max() <= 0.5 for d in g)]
        groups = [g for g in groups if g not in near] + [[c, *(d for g in near for d in g)]]
    return sorted(map(sorted, groups))


def entropy(table: Any, family: list[int]) -> float:
    """H(child | parents) in the data, in nats; the child is the last of the family."""
    shape = [len(table.states[v]) for v in family]
    cells = np.ravel_multi_index([*table.codes[family].astype(np.int64)], shape)
    counts = np.bincount(cells, minlength=int(np.prod(shape)))
    p = counts.reshape(-1, shape[-1]) / counts.sum()
    rows = p.sum(axis=1, keepdims=True)
    used = p > 0
    return -float((p[used] * np.log((p / np.where(rows > 0, rows, 1.0))[used])).sum())


def main() -> None:
    """Run the chains, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--tempering", type=int, default=0)
    parser.add_argument("--blocks", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=7)
    o = parser.parse_args()
    net: Any = jtgpu.load(o.network)
    cases = net.compile("cpu").sample(o.cases, seed=o.seed)
    data = {v: cases[v] for v in net.variables}
    chains = jtgpu.learn.Chains(n_chains=o.chains, tempering=o.tempering or False, blocks=o.blocks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        post = jtgpu.learn.posterior(
            data, states=net, method="mcmc", seed=o.seed, seconds=o.seconds, chains=chains,
            compute=jtgpu.Compute(threads=o.threads),
        )  # fmt: skip
    print(post.describe(), "\n")
    names, table, source = post.names, post._record.table, post._source
    graphs = arcs_of(source.graphs(), post._record.parents)  # (T, C, n, n)
    means = graphs.mean(axis=0)
    spread = np.ptp(means, axis=0)
    links = means + means.swapaxes(1, 2)
    moved = int((np.triu(np.ptp(links, axis=0), 1) > 0.5).sum())
    far, some = int((spread > 0.5).sum()), int((spread > 0.1).sum())
    print(f"{far} arcs differ by more than .5 between chains, {some} by more than .1")
    print(f"{moved} links, in whichever direction, differ by more than .5")
    for i in np.argsort(-spread, axis=None)[:SHOWN]:
        u, v = divmod(int(i), len(names))
        if spread[u, v] > 0.05:
            shares = " ".join(f"{p:4.2f}" for p in means[:, u, v])
            either = f"{links[:, u, v].min():.2f} to {links[:, u, v].max():.2f}"
            print(f"  {names[u]} -> {names[v]}: {shares}; in either direction {either}")
    for c, trace in enumerate(post.trace):
        quarters = np.array_split(trace, 4)
        print(f"chain {c}: mean ln weight by quarters " + ", ".join(f"{q.mean():.1f}" for q in quarters if len(q)))
    weigh(names, table, source, graphs, modes_of(means), (spread > 0.5).any(axis=0))


def weigh(
    names: tuple[str, ...], table: Any, source: Any, graphs: Any, modes: list[list[int]], apart: Any
) -> None:
    """Print the modes and how their best graphs differ."""
    tables, parents = source._summary.tables, source._coverage.parents
    position = {int(mask): i for i, mask in enumerate(tables.masks)}

    def family(arcs: Any, v: int) -> float | None:
        members = np.flatnonzero(arcs[:, v])
        if not np.isin(members, tables.candidates[v]).all():
            return None
        at = position.get(int(tables.bit_in[members, v].sum()))
        return None if at is None else float(tables.log_weights[v, at])

    def weight(arcs: Any) -> float:
        values = [family(arcs, v) for v in range(len(names))]
        return -np.inf if None in values else float(sum(x for x in values if x is not None))

    best = []
    for mode in modes:
        distinct = {g.tobytes(): g for c in mode for g in graphs[-400:, c]}
        best.append(max(distinct.values(), key=weight))
    weights = [weight(g) for g in best]
    order = np.argsort([-w for w in weights])
    top = best[order[0]]
    print(f"\n{len(modes)} modes of {graphs.shape[1]} chains, {parents.shape[1]} possible parents of a variable")
    for m in order.tolist():
        g = best[m]
        different = (g != top).any(axis=0)
        moved = int(np.triu((g | g.T) != (top | top.T), 1).sum())
        alone = sum((family(g, v) or 0.0) - (family(top, v) or 0.0) for v in np.flatnonzero(different & apart).tolist())
        print(
            f"mode of chains {modes[m]}: ln weight {weights[m] - weights[order[0]]:+.2f}, {int(g.sum())} arcs; {moved} "
            f"links and {int(different.sum())} families differ from the best mode, distance of classes "
            f"{structural_hamming_distance(g, top)}; families that differ between chains alone {alone:+.2f}"
        )
        for v in np.flatnonzero(different & apart).tolist()[:SHOWN]:
            here, there = (np.flatnonzero(x[:, v]).tolist() for x in (g, top))
            own, other = family(g, v), family(top, v)
            change = "" if own is None or other is None else f", ln weight {own - other:+.2f}"
            sets = [f"{{{', '.join(names[u] for u in members)}}}" for members in (here, there)]
            known = f"H {entropy(table, [*here, v]):.3f} for {entropy(table, [*there, v]):.3f}"
            print(f"    {names[v]}: {sets[0]} for {sets[1]}{change}, {known}")


if __name__ == "__main__":
    main()
