"""Plans: determinism, limits, rules, cost, saving."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans import compiler
from jtgpu.plans.lowering import LOWERINGS
from jtgpu.plans.plan import Plan
from jtgpu.util import system
from tests.model.test_network import lawn
from tests.support import random_nets


def plan_of(model: DiscreteModel, order: list[int] | None = None, **options: object) -> Plan:
    scopes = [f.scope for f in compiler.model_factors(model)]
    order = list(range(len(model))) if order is None else order
    return compiler.build_plan(model.cardinality, scopes, compiler.order_graph(model), order, **options)  # type: ignore[arg-type]


@given(data=st.data())
def test_plans_are_consistent_and_read_back_from_bytes(data: st.DataObject) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(12), random_nets.markov_networks()))
    order = list(data.draw(st.permutations(range(len(model)))))
    for lowering in LOWERINGS:
        plan = plan_of(model, order, lowering=lowering)
        plan.check()
        again = Plan.from_bytes(plan.to_bytes())
        assert again == plan
        assert again.to_bytes() == plan.to_bytes() == plan_of(model, order, lowering=lowering).to_bytes()
        assert hash(again) == hash(plan)


SCRIPT = """
import sys, hashlib
sys.path.insert(0, {root!r})
from tests.plans.test_plan import chain
from tests.model.test_network import lawn
for net in (lawn(), chain(60)):
    print(hashlib.sha256(net.plan(order="auto", cache=False).plan.to_bytes()).hexdigest())
"""


@pytest.mark.slow
def test_plans_are_the_same_bytes_in_every_process() -> None:
    root = str(Path(__file__).resolve().parents[2])
    seen = set()
    for seed in ("0", "1", "77"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(root=root)],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(done.stdout)
    assert len(seen) == 1


def chain(n: int, states: int = 2) -> BayesianNetwork:
    """x0 -> x1 -> ... with rows that depend on the state."""
    names = [f"x{i}" for i in range(n)]
    table = np.full((states, states), 0.2 / max(states - 1, 1))
    np.fill_diagonal(table, 0.8 if states > 1 else 1.0)
    first = np.full(states, 1.0 / states)
    return BayesianNetwork(
        {v: [str(k) for k in range(states)] for v in names},
        {b: [a] for a, b in pairwise(names)},
        {v: table if i else first for i, v in enumerate(names)},
        name="chain",
    )


def test_cost() -> None:
    cost = lawn().plan(order=["wet", "rain", "sprinkler"]).cost()
    assert (cost.cliques, cost.entries, cost.largest, cost.smallest) == (1, 12, 12, 12)
    assert (cost.levels, cost.width, cost.separator_entries) == (1, 2, 0)
    assert cost.bytes % 8 == 0
    cost = chain(5, 3).plan(order=[f"x{i}" for i in range(5)]).cost()
    assert (cost.cliques, cost.entries, cost.levels, cost.width) == (4, 36, 3, 1)
    assert (cost.separator_entries, cost.largest_separator) == (9, 3)
    assert cost.largest_table == 9


def test_description_contains_the_numbers() -> None:
    text = lawn().plan().describe()
    assert "lawn: 3 variables" in text
    assert "12 entries" in text


def clique_network(n: int) -> BayesianNetwork:
    """A variable with n-1 parents."""
    names = [f"p{i}" for i in range(n)]
    return BayesianNetwork(
        {v: ["0", "1"] for v in names},
        {names[-1]: names[:-1]},
        {v: np.full((2,) * (n if v == names[-1] else 1), 0.5) for v in names},
        name="big",
    )


def grid(n: int) -> BayesianNetwork:
    """An n x n grid of binary variables: width about n, so tables of 2**n entries."""
    states = {f"g{r}_{c}": ["0", "1"] for r in range(n) for c in range(n)}
    parents = {
        f"g{r}_{c}": [f"g{a}_{b}" for a, b in ((r - 1, c), (r, c - 1)) if a >= 0 and b >= 0]
        for r in range(n)
        for c in range(n)
    }
    return BayesianNetwork(states, parents, {v: np.full((2,) * (len(p) + 1), 0.5) for v, p in parents.items()})


def test_plans_that_do_not_fit_are_rejected_before_allocation() -> None:
    net = clique_network(10)
    with pytest.raises(errors.TableTooLarge, match=r"1,024 entries .* limit of 1,000 \(max_table\)") as error:
        net.plan(max_table=1000)
    assert error.value.entries == 1024
    assert "order=" in str(error.value)
    with pytest.raises(errors.TableTooLarge, match=r"limit of 1\.0 KiB \(memory_limit") as error:
        net.plan(memory_limit="1KiB")
    assert error.value.needed > error.value.limit == 1024
    net.plan(max_table=1024, memory_limit=10**6)


@pytest.mark.slow
def test_sizes_beyond_any_memory_are_counted_exactly() -> None:
    """2**60 entries and more do not overflow."""
    with pytest.raises(errors.TableTooLarge):
        grid(60).plan(order="min-neighbours", max_table=None, memory_limit=math.inf, cache=False)


def test_default_limits() -> None:
    wide = grid(34)
    with pytest.raises(errors.TableTooLarge, match="100,000,000"):
        wide.plan(order="min-fill", cache=False)


@pytest.mark.parametrize(
    ("size", "n"), [("8GiB", 8 * 2**30), ("500 MB", 500_000_000), ("1.5k", 0), (1024, 1024), ("2K", 0), ("7", 7)]
)
def test_sizes_as_people_write_them(size: str | int, n: int) -> None:
    if n:
        assert system.parse_bytes(size) == n
    else:
        with pytest.raises(ValueError, match="8GiB"):
            system.parse_bytes(size)


def test_free_memory_is_positive() -> None:
    assert 2**20 < system.free_memory() < 2**50


def test_files_that_a_container_has_read_leave_its_memory_free(tmp_path: Path) -> None:
    for cached, free in ((9_000_000, 9_000_000), (10, 1 << 22)):
        stat = f"anon {10_000_000 - cached}\ninactive_file {cached}\n"
        for name, text in (("max", "10000000\n"), ("current", "10000000\n"), ("stat", stat)):
            (tmp_path / f"memory.{name}").write_text(text)
        assert system.free_memory(tmp_path) == free


@pytest.mark.parametrize(
    ("line", "folder", "names"),
    [
        ("4:memory:/a/b", "memory/a", ("limit_in_bytes", "usage_in_bytes", "total_inactive_file")),
        ("4:cpu,memory:/docker/1", "memory", ("limit_in_bytes", "usage_in_bytes", "total_inactive_file")),
        ("0::/user/one", "user", ("max", "current", "inactive_file")),
    ],
)
def test_free_memory_keeps_to_the_control_groups_of_both_versions(
    tmp_path: Path, line: str, folder: str, names: tuple[str, ...]
) -> None:
    (tmp_path / "cgroup").write_text(f"9:name=systemd:/\n{line}\n")
    group = tmp_path / "fs" / folder
    group.mkdir(parents=True)
    limit, current, cached = names
    for name, text in ((limit, "10000000"), (current, "4000000"), ("stat", f"rss 1\n{cached} 1000000")):
        (group / f"memory.{name}").write_text(f"{text}\n")
    assert system.free_memory(tmp_path / "fs", tmp_path) == 7_000_000
    (group / f"memory.{limit}").write_text("9223372036854771712\n")  # none
    assert system.free_memory(tmp_path / "fs", tmp_path) > 2**25


def test_free_memory_keeps_to_the_limit_of_the_process() -> None:
    code = "from jtgpu.util.system import free_memory; print(free_memory())"
    shell = f"ulimit -v 3000000 && OPENBLAS_NUM_THREADS=1 exec {sys.executable} -c '{code}'"
    assert int(subprocess.run(["sh", "-c", shell], capture_output=True, check=True).stdout) < 3_072_000_000


def test_saved_plans(tmp_path: Path) -> None:
    net = lawn()
    plan = net.plan()
    plan.save(tmp_path / "lawn.plan")
    again = jtgpu.NetworkPlan.load(tmp_path / "lawn.plan", net)
    assert again.plan == plan.plan
    again.check()
    assert [p.name for p in tmp_path.iterdir()] == ["lawn.plan"]
    with pytest.raises(errors.PlanError, match="another model"):
        jtgpu.NetworkPlan.load(tmp_path / "lawn.plan", chain(3))
    (tmp_path / "bad.plan").write_bytes(plan.plan.to_bytes()[:-200])
    with pytest.raises(errors.PlanError, match="not a saved plan"):
        Plan.load(tmp_path / "bad.plan")
    (tmp_path / "text.plan").write_text("not a plan")
    with pytest.raises(errors.PlanError, match="not a saved plan"):
        Plan.load(tmp_path / "text.plan")
    with pytest.raises(errors.PlanFileError, match="no such file"):
        plan.save(tmp_path / "nowhere" / "lawn.plan")


def test_every_rule_is_checked() -> None:
    """Break one number at a time: the check either names a rule, or the plan is still a plan."""
    plan = chain(6, 3).plan(order=[f"x{i}" for i in range(6)]).plan
    broken = 0
    for field in dataclasses.fields(plan):
        array = getattr(plan, field.name)
        for at in range(len(array)):
            for change in (-1, 1, 1000):
                wrong = array.copy()
                wrong[at] += change
                try:
                    dataclasses.replace(plan, **{field.name: wrong}).check()
                except errors.PlanError:
                    broken += 1
    assert broken > 500


def test_orders_that_users_give() -> None:
    net = lawn()
    assert net.plan(order=["rain", "wet", "sprinkler"]).elimination_order == ("rain", "wet", "sprinkler")
    assert net.plan(order=[2, 0, 1]).elimination_order == ("wet", "rain", "sprinkler")
    with pytest.raises(errors.OrderError, match="'min-fil' is neither"):
        net.plan(order="min-fil")
    with pytest.raises(errors.JtgpuError):
        net.plan(order=["rain", "wet"])
    with pytest.raises(errors.JtgpuError):
        net.plan(order="nowhere.num")


def test_a_model_without_variables() -> None:
    with pytest.raises(errors.NetworkError, match="no variables"):
        BayesianNetwork({}, {}, {}).plan()


def test_dense_networks_are_refused_before_an_order_is_searched(
    shared_nets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search took 39 s until this network was refused."""
    net = jtgpu.read(shared_nets / "uai2014" / "relational_1.uai")
    monkeypatch.setattr("jtgpu.plans.ordering.find_order", None)
    with pytest.raises(errors.TableTooLarge, match=r"at least 2\^125 entries.*100,000,000 entries") as error:
        net.plan()
    assert error.value.entries == 2**125
    with pytest.raises(errors.TableTooLarge, match=r"1\.0 MiB \(memory_limit\)"):
        net.plan(memory_limit="1MiB")


def test_the_cost_of_tables_beyond_64_bits_is_exact() -> None:
    names = [f"x{i}" for i in range(35)]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[:i]]
    net = MarkovNetwork({x: ["a", "b", "c"] for x in names}, [(pair, np.ones((3, 3))) for pair in pairs])
    cost = net.plan("min-fill", max_table=None, memory_limit=1 << 60, cache=False).cost()
    assert cost.largest == cost.entries == 3**35
    assert cost.flops > 2**58
