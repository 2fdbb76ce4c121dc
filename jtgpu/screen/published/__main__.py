"""``python -m jtgpu.screen.published``: the published kernels on this machine's GPU, next to the published figures."""

from __future__ import annotations

import argparse
import sys

from ...errors import JtgpuError
from ...util.arguments import report as progress
from .table import PUBLISHED, measure, measure_modes, report


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m jtgpu.screen.published", description=__doc__)
    parser.add_argument(
        "--columns", default="100000,1000000,2000000", help="of the matrix, separated by commas, or all"
    )
    parser.add_argument("-m", type=int, default=100, help="rows of the matrix")
    parser.add_argument("-k", type=int, default=50, help="distances that are selected")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", default="1000000x2", help="of the table for the solving set, as ROWSxCOLUMNS")
    options = parser.parse_args()
    d, a = (int(word) for word in options.rows.split("x"))
    sizes = [*PUBLISHED] if options.columns == "all" else [int(word) for word in options.columns.split(",")]
    try:
        device, rows = measure(sizes, options.m, options.k, options.runs, progress)
        modes = measure_modes(d, a, 10, options.m, options.k, options.runs, progress)
    except JtgpuError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(report(device, rows))
    print(f"\nSolving set (A4) of {d:,} x {a} normal numbers, n=10, seconds; published: redMS is nearly always fastest")
    print(", ".join(f"{mode} {seconds:.3f}" for mode, seconds in sorted(modes.items(), key=lambda item: item[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
