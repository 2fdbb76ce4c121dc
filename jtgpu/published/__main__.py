"""``python -m jtgpu.published NAME``: a published system on this machine, next to its published times."""

from __future__ import annotations

import argparse
import sys

from ..errors import JtgpuError
from ..util.arguments import report as progress
from .times import (
    SELECTION_SPEEDUPS,
    durbin_report,
    measure_durbin,
    measure_selection,
    measure_solving_set,
    selection_report,
)


def _outliers(options: argparse.Namespace) -> None:
    """Selection kernels and solving sets of the thesis on outliers."""
    d, a = (int(word) for word in options.rows.split("x"))
    sizes = [*SELECTION_SPEEDUPS] if options.columns == "all" else [int(word) for word in options.columns.split(",")]
    device, rows = measure_selection(sizes, options.m, options.k, options.runs, progress)
    modes = measure_solving_set(d, a, 10, options.m, options.k, options.runs, progress)
    print(selection_report(device, rows))
    print(f"\nSolving set (A4) of {d:,} x {a} normal numbers, n=10, seconds; published: redMS is nearly always fastest")
    print(", ".join(f"{mode} {seconds:.3f}" for mode, seconds in sorted(modes.items(), key=lambda item: item[1])))


def _durbin(options: argparse.Namespace) -> None:
    """Versions of PolyBench's ``durbin``."""
    print(durbin_report(measure_durbin([int(word) for word in options.sizes.split(",")], options.runs, progress)))
    print("\nWall time of the whole call, float64. Published: float, hardware unknown. Only levinson solves a system.")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m jtgpu.published", description=__doc__)
    systems = parser.add_subparsers(metavar="NAME", required=True)
    outliers = systems.add_parser("outliers", help="selection kernels and solving sets (Zanirati, 2012); needs a GPU")
    outliers.add_argument("--columns", default="100000,1000000,2000000", help="of the matrix, by commas, or all")
    outliers.add_argument("-m", type=int, default=100, help="rows of the matrix")
    outliers.add_argument("-k", type=int, default=50, help="distances that are selected")
    outliers.add_argument("--runs", type=int, default=5)
    outliers.add_argument("--rows", default="1000000x2", help="of the table for the solving set, as ROWSxCOLUMNS")
    outliers.set_defaults(run=_outliers)
    durbin = systems.add_parser("durbin", help="PolyBench's durbin (Bianco, Burchiellaro and Uguzzoni)")
    durbin.add_argument("--sizes", default="100,1000,10000,15000", help="separated by commas")
    durbin.add_argument("--runs", type=int, default=3)
    durbin.set_defaults(run=_durbin)
    options = parser.parse_args()
    try:
        options.run(options)
    except JtgpuError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
