#!/usr/bin/env python3
"""Find elimination orders for the networks of ``nets/`` and write them to ``nets/NAME.num``.

python tools/make_orders.py               writes each order that is better than the existing one
python tools/make_orders.py munin1 link   these networks only
python tools/make_orders.py --time 60     seconds for each network
python tools/make_orders.py --check       writes nothing; fails if an order is missing or does not fit
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jtgpu.errors import JtgpuError  # noqa: E402
from jtgpu.formats import read  # noqa: E402
from jtgpu.model.discrete import DiscreteModel  # noqa: E402
from jtgpu.plans import ordering  # noqa: E402


def order_graph(model: DiscreteModel) -> list[list[int]]:
    """Who shares a factor with whom."""
    around: list[set[int]] = [set() for _ in model.variables]
    for scope, _ in model.factors:
        for v in scope:
            around[v].update(scope)
    return [sorted(s - {v}) for v, s in enumerate(around)]


def main() -> int:
    """Search, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="stems of files in nets/; all by default")
    parser.add_argument("--time", type=float, default=30.0, help="seconds of search for each network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="write nothing, search nothing")
    options = parser.parse_args()
    wrong = 0
    for path in sorted((ROOT / "nets").glob("*.net*")):
        stem = path.name.split(".")[0]
        if options.names and stem not in options.names:
            continue
        model = read(path)
        around = order_graph(model)
        target = path.with_name(f"{stem}.num")
        before = None
        try:
            if target.exists():
                before = ordering.order_cost(model.cardinality, around, ordering.read_num(target, model)).entries
        except JtgpuError as error:
            print(f"{stem}: {error}", file=sys.stderr)
        if options.check:
            wrong += before is None
            print(f"{stem:<14}{before if before is not None else 'no order that fits':>20}")
            continue
        found = ordering.find_order(
            model.cardinality, around, "best", time_limit=options.time, seed=options.seed, cache=False
        )
        if before is None or found.entries < before:
            ordering.write_num(target, model, found.order.tolist())
        print(f"{stem:<14}{found.entries:>16,}{'' if before is None else f'  (was {before:,})'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
