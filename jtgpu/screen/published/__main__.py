"""``python -m jtgpu.screen.published``: the published table of the selection kernels next to today's."""

from __future__ import annotations

import argparse
import sys

from ...errors import JtgpuError
from ...util.progress import report as progress
from .table import PUBLISHED, measure, report


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m jtgpu.screen.published", description=__doc__)
    parser.add_argument(
        "--columns", default="100000,1000000,2000000", help="of the matrix, separated by commas, or all"
    )
    parser.add_argument("-m", type=int, default=100, help="rows of the matrix")
    parser.add_argument("-k", type=int, default=50, help="distances that are selected")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    sizes = [*PUBLISHED] if options.columns == "all" else [int(word) for word in options.columns.split(",")]
    try:
        device, rows = measure(sizes, options.m, options.k, options.runs, progress)
    except JtgpuError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(report(device, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
