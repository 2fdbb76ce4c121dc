"""``python -m jtgpu.series.published``: the published versions of ``durbin`` on this machine, next to their times."""

from __future__ import annotations

import argparse

from ...util.arguments import report as progress
from .table import measure, report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m jtgpu.series.published", description=__doc__)
    parser.add_argument("--sizes", default="100,1000,10000,15000", help="separated by commas")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    found = measure([int(word) for word in options.sizes.split(",")], options.runs, progress)
    print(report(found))
    print("\nWall time of the whole call, float64. Published: float, hardware unknown. Only levinson solves a system.")


if __name__ == "__main__":
    main()
