"""How a network is planned and compiled, as the options of a command say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from click import BadParameter

from ..errors import ArgumentError, FormatError, PlanError
from ..formats.bundled import network_path, order_file
from ..inference.network_plan import NetworkPlan
from ..inference.planning import plan_or_questions
from ..model.decisions import DecisionNetwork
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..options.compute import Compute, Planning
from .tables import status

if TYPE_CHECKING:
    from ..decisions.tree import DecisionTree
    from ..mixed import MixedTree

COMPILING = "compiling (takes longer the first time on a machine)"


def make_plan(plan: Planning, net: DiscreteModel, file: str, run: Compute | None = None, **more: Any) -> NetworkPlan:
    """Plan a network that was read from a file, or load the plan that ``--plan`` names.

    Where the whole tree does not fit, questions are planned one by one.
    """
    require_no_decisions(net, file)
    if plan.plan is not None:
        return load_plan(plan, net)
    return plan_or_questions(net, cast("Any", order_of(plan, net, file)), **plan.keywords(run), **more)


def require_no_decisions(net: Any, file: str) -> None:
    """Raise for a network with decisions, and say what answers about them."""
    if isinstance(net, DecisionNetwork):
        raise ArgumentError(
            f"{file} has decisions: jtgpu decide finds the best policy, jtgpu query, mpe and sample answer under it, "
            "and jtgpu convert --chance-only writes a Bayesian network in which decisions are uniform"
        )


def order_of(plan: Planning, net: DiscreteModel, file: str) -> str | Path | Sequence[str]:
    """The argument `order` of ``net.plan``: names if ``--plan`` gives them."""
    if plan.plan is not None:
        return load_plan(plan, net).order
    return order_file(network_path(file)) if plan.order == "num" else plan.order


def load_plan(plan: Planning, net: DiscreteModel) -> NetworkPlan:
    """Load the plan that ``--plan`` names."""
    # raises FormatError: If the file holds no plan, or the plan of another network.
    assert plan.plan is not None
    if "slices" in plan.keywords():
        raise BadParameter("a saved plan has no slices; omit --slice", param_hint="--plan")
    if plan.order != "auto" or plan.order_time is not None:
        raise BadParameter("a saved plan has its order; omit --order and --order-time", param_hint="--plan")
    if not Path(plan.plan).exists():
        raise BadParameter(f"{plan.plan}: No such file or directory", param_hint="--plan")
    try:
        return NetworkPlan.load(plan.plan, net)
    except PlanError as error:
        raise FormatError(f"{plan.plan}: {error}") from None


def compiled_kind(
    net: MixedNetwork | DecisionNetwork, file: str, plan: Planning, run: Compute
) -> MixedTree | DecisionTree:
    """A network with numbers or decisions, compiled; options that it does not take are an error."""
    if plan.plan is not None or run.compile_options():
        option = "--plan" if plan.plan is not None else "--devices, --dtype"
        why = "numbers, whose plans depend on what is observed" if isinstance(net, MixedNetwork) else "decisions"
        raise BadParameter(
            f"{file} has {why}: --backend, --threads and options of the order are taken, --order saved among them",
            param_hint=option,
        )
    options: dict[str, Any] = run.threads_option()
    if plan != type(plan)():
        states = net.discrete if isinstance(net, MixedNetwork) else net
        options |= {"order": order_of(plan, states, file), **plan.keywords()}
    return net.compile(cast("Any", run.backend), **options)


@contextmanager
def compiled(
    net: DiscreteModel | MixedNetwork, file: str, plan: Planning, run: Compute, *, decisions: bool = False
) -> Iterator[tuple[Any, Callable[[str], None]]]:
    """Plan and compile a network, with a status line on stderr."""
    # file: The file that it was read from
    # run: The plan has to fit in the memory of the devices named here
    # decisions: Whether networks with decisions are compiled, too; otherwise they are an error
    # yields (tree, callable): The tree, closed on exit, and the function that sets the text of the status line.
    if isinstance(net, MixedNetwork) or (decisions and isinstance(net, DecisionNetwork)):
        with compiled_kind(net, file, plan, run) as tree, status("propagating", run.progress) as step:
            yield tree, step
        return
    with status("planning", run.progress) as step:
        made = make_plan(plan, net, file, run)
        step(COMPILING)
        with run.compile(made, step) as tree:
            step("propagating")
            yield tree, step
