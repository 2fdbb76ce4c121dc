"""``jtgpu plan``: the cost of propagation, without computing anything."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click import BadParameter

from ..errors import BackendUnavailable, FormatError
from ..options.compute import CutPlanning
from ..util.text_table import printable as shown
from .console import format_seconds, print_json
from .declared import Plan
from .networks import check_outputs, read_network
from .planning import make_plan
from .tables import is_shown, status

if TYPE_CHECKING:
    from ..inference.network_plan import NetworkPlan
    from ..plans.ordering import OrderResult


def plan(o: Plan, options: CutPlanning) -> None:
    """Run ``jtgpu plan``."""
    check_outputs(o.force, o.output)
    net = read_network(o.file)
    with _search_progress(options.order, o.progress) as report:
        made = make_plan(options, net, o.file, progress=report)
    if o.output is not None:
        made.save(o.output)
    search = made.search
    if o.plot is not None:
        _plot(search, o.plot, o.file)
    if o.json:
        print_json({
            "file": o.file, "order": options.order if options.plan is None else None, "plan": options.plan,
            **_as_json(made),
        })
        return
    # names come from the file and must not control the terminal
    history = _history(search) if search is not None and options.order == "best" else ()
    sys.stdout.write("\n".join(shown(line) for line in [*made.describe().splitlines(), *history]) + "\n")


def _as_json(made: NetworkPlan) -> dict[str, Any]:
    if not made.plan.is_planned:
        return {"whole": False, "reason": made.describe().splitlines()[0]}
    head: dict[str, Any] = {"whole": True, "cost": asdict(made.cost())}
    if made.slices:  # the cost is that of one slice
        head["slices"] = {
            "variables": list(made.slices), "count": made.n_slices, "flops": made.n_slices * made.cost().flops,
        }  # fmt: skip
    if made.search is not None:
        search = made.search
        head["search"] = {
            "method": search.method, "seed": search.seed, "seconds": search.seconds, "lower_bound": search.lower_bound,
            "optimal": search.optimal, "from_cache": search.from_cache, "interrupted": search.interrupted,
            "trace": [{"seconds": t.seconds, "cost": t.cost, "rule": t.rule} for t in search.trace],
        }
    return {**head, "elimination_order": list(made.order)}


@contextmanager
def _search_progress(order: str, wanted: object) -> Iterator[Callable[[float, float, float], None] | None]:
    """A status line on stderr; on a terminal with the cost and the share of the search that is done."""
    with status("searching for an elimination order", wanted) as step:
        if order == "best" and is_shown(wanted) and sys.stderr.isatty():
            yield lambda cost, _, done: step(f"searching, {done:.0%}: {cost:,.0f} entries")
        else:
            yield None


def _history(search: OrderResult) -> Iterator[str]:
    """The improvements of a search, one line each."""
    yield "improvements during the search:"
    for step in search.trace:
        yield f"  {format_seconds(step.seconds):>8}  {step.cost:>20,.0f}  {step.rule}"
    if search.optimal:
        yield "  proven optimal"
    if search.interrupted:
        yield "  interrupted: best order so far"


def _plot(search: OrderResult | None, path: Path, file: str) -> None:
    if search is None:
        raise BadParameter("--plot draws a search, but this order was given")
    try:
        from ..draw.plots import draw_search

        draw_search(search.trace, path, title=file, seconds=search.seconds)
    except ImportError as error:
        raise BackendUnavailable(f"--plot requires matplotlib ({error}): pip install matplotlib") from None
    except ValueError as error:  # a suffix that matplotlib does not support
        raise FormatError(f"{path}: {error}") from None
