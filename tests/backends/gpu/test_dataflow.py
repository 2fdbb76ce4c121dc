"""The engine without levels, without a GPU: its schedule, its records, and its kernel run on the host."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import jtgpu
from jtgpu.backends import reference
from jtgpu.backends.base import Evidence, Result, columns_of
from jtgpu.backends.gpu.program import encoding as answers
from jtgpu.backends.gpu.program.bounds import lowest_answer
from jtgpu.backends.gpu.program.layout import scaled_factors
from jtgpu.backends.gpu.program.nonzero import lowest_root, needed_products
from jtgpu.backends.gpu.program.tiling import binary_program, loops_of
from jtgpu.backends.gpu.single.dataflow import schedule as flow
from jtgpu.backends.gpu.single.dataflow import tiling as flow_tiles
from jtgpu.backends.gpu.single.dataflow.structs import AWAITED, ENTER_SHAPE, LONG, ROOT_SHAPE, TENSOR
from jtgpu.backends.gpu.single.levels.pattern import Whole, left_of
from jtgpu.device import nvcc as kernels
from jtgpu.model.network import MarkovNetwork
from jtgpu.plans.conditioning.restriction import Restriction
from jtgpu.plans.lowering import LOWERINGS
from jtgpu.plans.plan import Plan
from tests.backends.gpu.test_levels import as_evidence, needs_compiler, tables
from tests.plans.test_plan import chain
from tests.plans.test_program import planned
from tests.support import random_nets
from tests.support.emulated import host_cuda
from tests.support.examples import examples

WAYS = (
    flow.USUAL, flow.FlowWay(warps=8), flow.FlowWay(warps=12, kept=4), flow.FlowWay(longer=True, kept=4),
    flow.FlowWay(longer=False, kept=0), flow.FlowWay(8, True, 4, 1.0, 20.0), flow.FlowWay(blocks=True),
    flow.FlowWay(8, True, 0, 0.1, 0.1, blocks=True),
)  # fmt: skip


class HostFlow:
    """`jtgpu.backends.gpu.single.dataflow.engine.FlowEngine` with the host in place of the card: one block."""

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        way: flow.FlowWay = flow.USUAL,
        whole: Whole | None = None,
    ):
        made = flow.make_flow(plan, factors, 1, way, whole)
        assert made is not None
        self.plan, self.flow, self.runs = plan, made, 0
        arena = np.zeros(made.n_cells)
        arena[: len(made.arena)] = made.arena
        self.weights = np.full(int(plan.posterior_ptr[-1]), np.nan)
        self.state = np.zeros(plan.n_variables, np.int32)
        n_answers = int((plan if whole is None else whole).posterior_ptr[-1])
        self.posterior = np.full(n_answers, np.nan if whole is None else 0.0)
        self.root = np.zeros(len(plan.root_table))
        self.arrays = [
            arena, made.pristine, made.ops, made.digits, made.steps, made.tasks, made.starts, made.known,
            self.weights, made.roots, self.posterior, self.root,
        ]  # fmt: skip
        pointers = np.array([a.ctypes.data for a in self.arrays], np.uint64).view(np.uint8)
        self.struct = np.zeros(len(pointers) + 8 + 2 * flow.MOST_GIVEN, np.uint8)
        self.struct[: len(pointers)] = pointers
        self.numbers = self.struct[len(pointers) : len(pointers) + 8].view(np.uint32)
        self.given = self.struct[len(pointers) + 8 :].view(np.int16)
        self.numbers[1] = len(plan.root_table)

    def run(self, evidence: Evidence) -> Result:
        """As the engine does, but never asking another one."""
        more = answers.write_evidence(self.plan, evidence, self.state, self.weights) + self.flow.exponent
        self.give()
        self.runs += 1
        self.numbers[0] = (self.runs & 1) << 31
        getattr(host_cuda.library("flow"), f"run_{self.flow.kernel}")(self.flow.warps, host_cuda._at(self.struct))
        exponent = np.zeros(len(self.root), np.int32)
        return Result(self.posterior.copy(), answers.log_evidence(self.root, exponent, more))

    def give(self) -> None:
        self.given[: len(self.state)] = self.state


class HostCutFlow(HostFlow):
    """`jtgpu.backends.gpu.single.dataflow.pattern.CutFlow` with the host in place of the card."""

    n_bytes, closed = 100, False

    def __init__(self, plan: Plan, whole: Whole, way: flow.FlowWay = flow.USUAL):
        super().__init__(plan, whole.largest, way, whole)
        self.kept = np.flatnonzero(~whole.seen)
        self.observed = np.zeros(len(whole.seen), np.int32)

    def run(self, evidence: Evidence) -> Result:
        self.observed = evidence.state
        return super().run(left_of(evidence, self.kept, {int(v): w for w, v in enumerate(self.kept)}))

    def give(self) -> None:
        self.given[: len(self.observed)] = self.observed
        self.given[self.kept[self.state == answers.WEIGHTS]] = answers.WEIGHTS

    def close(self) -> None:
        self.closed = True


def agree(engine: Any, definition: reference.Reference, evidence: Evidence) -> None:
    try:
        expected = definition.run(evidence)
    except jtgpu.ImpossibleEvidence:
        with pytest.raises(jtgpu.ImpossibleEvidence):
            engine.run(evidence)
        return
    got = engine.run(evidence)
    np.testing.assert_allclose(got.posterior, expected.posterior, atol=1e-12)
    assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)


@needs_compiler
@pytest.mark.parametrize("lowering", LOWERINGS)
@examples(40)
@given(data=st.data())
def test_the_kernel_agrees_with_the_definition(data: st.DataObject, lowering: str) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(data.draw(st.permutations(range(len(model))))), lowering)
    engine = HostFlow(plan, tables(model), data.draw(st.sampled_from(WAYS)))
    definition = reference.prepare(plan, tables(model))
    for _ in range(3):  # evidence comes, changes and goes; the sign of a run too
        agree(engine, definition, as_evidence(len(model), *data.draw(random_nets.evidence_weights(model))))
    agree(engine, definition, Evidence.none(len(model)))


@needs_compiler
@pytest.mark.parametrize("blocks", [False, True])
def test_a_published_network_agrees_with_the_definition(shared_nets: Path, blocks: bool) -> None:
    """Tiles of every kind, and sums in parts."""
    net = jtgpu.read(shared_nets / "RetiEsempio" / "Mildew.net")
    plan = net.plan(order=shared_nets / "RetiEsempio" / "Mildew.num").plan
    engine = HostFlow(plan, tables(net), flow.FlowWay(blocks=blocks))
    definition = reference.prepare(plan, tables(net))
    assert len(np.unique(engine.flow.ops["shape"])) > 5
    assert bool((engine.flow.ops["shape"] & TENSOR).any()) == blocks
    assert engine.flow.ops["splits"].max() > 1
    state = np.full(plan.n_variables, -1, np.int32)
    agree(engine, definition, Evidence(state))
    for v in np.random.default_rng(3).choice(plan.n_variables, 3, replace=False).tolist():
        state[v] = 1
    agree(engine, definition, Evidence(state))


@needs_compiler
@pytest.mark.parametrize("body", list(flow_tiles.BLOCKS))
@pytest.mark.parametrize("splits", [1, 4])
def test_blocks_for_the_tensor_cores_of_every_kind(
    body: tuple[int, int, int], splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sides and sums that are no multiples of a block's, a side of several axes, entries that are always there."""
    usual = flow_tiles.flow_tiling

    def forced(loops: Any, two: bool, *rest: Any) -> flow_tiles.FlowTiling:
        blocks = flow_tiles._blocks(loops) if two else ()
        mine = [t for t in blocks if (*t.shape, t.unroll) == body]
        return min(mine, key=lambda t: abs(t.splits - splits), default=usual(loops, two, *rest))

    monkeypatch.setattr(flow, "flow_tiling", forced)
    rng = np.random.default_rng(11)
    cards = [17, 19, 23, 9, 12, 33]
    scopes = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4, 1), (4, 5), (5, 3)]
    model = MarkovNetwork(
        {str(v): [str(k) for k in range(n)] for v, n in enumerate(cards)},
        [([str(v) for v in s], rng.random([cards[v] for v in s]) * (rng.random([cards[v] for v in s]) < 0.7))
         for s in scopes],
    )  # fmt: skip
    plan = planned(model, [0, 5, 4, 3, 1, 2], "pairwise")
    engine = HostFlow(plan, tables(model), flow.FlowWay(blocks=True))
    shapes = engine.flow.ops["shape"]
    mine = engine.flow.ops[(shapes >= TENSOR) & (shapes < LONG + 2 * TENSOR)]
    assert len(mine) > 4
    assert mine["splits"].max() >= splits
    definition = reference.prepare(plan, tables(model))
    for seen in ({}, {1: 3}, {4: 5, 5: 2}, {}):
        state = np.full(len(cards), -1, np.int32)
        state[list(seen)] = list(seen.values())
        agree(engine, definition, Evidence(state))


@needs_compiler
@pytest.mark.parametrize("way", [WAYS[0], WAYS[4], WAYS[5]])
def test_a_network_without_observed_variables_agrees_with_the_whole(way: flow.FlowWay) -> None:
    """Factors are cut to other states in every run, and every cell that is brought in has the run's sign."""
    net = jtgpu.read(Path(__file__).parents[2] / "nets" / "hailfinder.net")
    plan = net.plan(order="min-fill").plan
    rng = np.random.default_rng(7)
    seen = np.zeros(len(net), np.bool_)
    seen[rng.choice(len(net), 12, replace=False)] = True
    definition = reference.prepare(plan, tables(net))
    for left in Restriction(plan.cardinality, plan.factor_scopes, seen).plans(plan.elimination_order.tolist()):
        whole = Whole(left, tables(net), plan.factor_scopes, seen)
        engine = HostCutFlow(left, whole, way)
        entered = engine.flow.ops[engine.flow.ops["shape"] == ENTER_SHAPE]
        assert np.count_nonzero(entered["n_digits"]) == len(whole.cut) > 0
        answered = 0
        for _ in range(8):
            state = np.full(len(net), -1, np.int32)
            state[seen] = rng.integers(0, net.cardinality[seen])
            soft = {int(v): rng.random(int(net.cardinality[v])) + 0.1 for v in engine.kept[:2]}
            try:
                expected = definition.run(Evidence(state, soft))
            except jtgpu.ImpossibleEvidence:
                with pytest.raises(jtgpu.ImpossibleEvidence):
                    engine.run(Evidence(state, soft))
                continue
            got = engine.run(Evidence(state, soft))
            assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)
            expected.posterior[columns_of(plan.posterior_ptr, np.flatnonzero(seen).tolist())] = 0.0
            np.testing.assert_allclose(got.posterior, expected.posterior, atol=1e-12)
            answered += 1
            for op in entered:
                cells = engine.arrays[0][int(op["out"]) : int(op["out"]) + int(op["n_tiles"])]
                assert (np.signbit(cells) == bool(engine.runs & 1)).all()
        assert answered > 1


@needs_compiler
def test_every_cell_is_written_once_a_run() -> None:
    """All that a run writes has its sign afterwards, zeros included; factors without evidence keep theirs."""
    net = jtgpu.read(Path(__file__).parents[2] / "nets" / "alarm.net")
    plan = net.plan(order="min-fill").plan
    engine = HostFlow(plan, tables(net))
    made, ops = engine.flow, engine.flow.ops
    contraction = ops["shape"] < ENTER_SHAPE
    written = np.zeros(made.n_cells, np.int64)
    for op in ops[contraction]:
        size = int(op["scratch"]) if op["splits"] > 1 else table_size(made, int(op["out"]))
        written[int(op["out"]) : int(op["out"]) + size * max(1, int(op["splits"]))] += 1
    for op in ops[ops["shape"] == ENTER_SHAPE]:
        written[int(op["out"]) : int(op["out"]) + int(op["n_tiles"])] += 1
    assert written.max() == 1
    state = np.full(plan.n_variables, -1, np.int32)
    for run in (1, 2, 3):
        engine.run(Evidence(state))
        signs = np.signbit(engine.arrays[0])
        assert (signs[written == 1] == bool(run & 1)).all()
        assert not signs[written == 0].any()


def table_size(made: flow.Flow, cell: int) -> int:
    """Cells of a table without its alignment: those of the contraction that makes it."""
    (op,) = made.ops[(made.ops["shape"] < ENTER_SHAPE) & (made.ops["out"] == cell)]
    size = int(op["n_tiles"])
    for side in ("m", "n"):
        if op[f"{side}_step"] > 1 or op[f"{side}_extent"] > 1:
            size = size // int(op[f"{side}_step"]) * int(op[f"{side}_extent"])
    return size


def producers(made: flow.Flow) -> list[set[int]]:
    """The records that make what each record reads."""
    by_cell = {int(op["out"]): i for i, op in enumerate(made.ops) if op["shape"] <= ENTER_SHAPE}
    found: list[set[int]] = []
    for op in made.ops:
        cells = []
        if op["shape"] == ROOT_SHAPE:
            cells = [int(c) for c, awaited in made.roots if awaited]
        elif op["shape"] != ENTER_SHAPE:
            cells = [int(op[t]) for t in "ab" if op[f"slot_{t}"] == AWAITED]
        found.append({by_cell[c] for c in cells})
    return found


@pytest.mark.parametrize(
    ("n_blocks", "way"), [(1, WAYS[0]), (7, WAYS[0]), (132, WAYS[0]), (7, WAYS[1]), (132, WAYS[4])]
)
def test_nobody_waits_for_ever(shared_nets: Path, n_blocks: int, way: flow.FlowWay) -> None:
    """With every queue's head running where its inputs are there, all units come to an end, whatever their times."""
    net = jtgpu.read(shared_nets / "RetiEsempio" / "Mildew.net")
    plan = net.plan(order=shared_nets / "RetiEsempio" / "Mildew.num").plan
    made = flow.make_flow(plan, tables(net), n_blocks, way)
    assert made is not None
    assert made.n_blocks == n_blocks
    needs = producers(made)
    left = np.bincount(made.tasks["op"], minlength=len(made.ops))
    assert left.min() > 0
    assert len(np.unique(made.tasks)) == len(made.tasks)
    splits = np.maximum(made.ops["splits"].astype(int), 1)
    dense = made.ops["shape"] < ENTER_SHAPE
    units = -(-made.ops["n_tiles"].astype(int) // (32 >> made.ops["log_lanes"].astype(int))) * splits
    np.testing.assert_array_equal(left[dense], units[dense])
    at, end = made.starts[:-1].astype(int), made.starts[1:].astype(int)
    moved = True
    while moved:
        moved = False
        for q in range(len(at)):
            while at[q] < end[q]:
                op = int(made.tasks["op"][at[q]])
                if any(left[m] for m in needs[op]):
                    break
                left[op] -= 1
                at[q] += 1
                moved = True
    assert (at == end).all()


def test_the_same_plan_gives_the_same_queues(shared_nets: Path) -> None:
    net = jtgpu.read(shared_nets / "RetiEsempio" / "Mildew.net")
    plan = net.plan(order=shared_nets / "RetiEsempio" / "Mildew.num").plan
    first, second = (flow.make_flow(plan, tables(net), 132) for _ in range(2))
    assert first is not None
    assert second is not None
    for name in ("ops", "digits", "steps", "tasks", "starts", "known", "roots", "arena", "pristine"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()


@needs_compiler
def test_what_is_too_small_is_noticed() -> None:
    n = 900
    net = chain(n, 3)
    plan = net.plan(order=list(range(n))).plan
    engine = HostFlow(plan, tables(net))
    engine.run(Evidence.none(n))
    assert engine.root.min() == pytest.approx(1.0)
    state = (np.arange(n) % 300 % 3).astype(np.int32)  # 10^-900
    with pytest.raises(jtgpu.ImpossibleEvidence):
        engine.run(Evidence(state))
    assert engine.root.min() < engine.flow.lowest


@examples(15)
@given(data=st.data())
def test_the_bound_is_that_of_the_lists(data: st.DataObject) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    plan = planned(model, list(range(len(model))), "pairwise")
    program = binary_program(plan)
    loops = [loops_of(plan, program.scopes, step) for step in program.steps]
    scaled = [table for table, _ in scaled_factors(plan, tables(model))]
    bound = lowest_answer(plan, program, loops, scaled)
    listed = lowest_root(plan, scaled, needed_products(plan, tables(model)))
    assert listed <= bound + 1e-9  # it counts products that are zero too
    assert bound - listed < 100  # entries beside a zero may be large in seven factors


def test_a_plan_of_too_many_variables_is_refused() -> None:
    n = flow.MOST_GIVEN + 1
    net = chain(n, 2)
    assert flow.make_flow(net.plan(order=list(range(n))).plan, tables(net), 4) is None
    seen = np.arange(n) % 2 == 1  # the states of all variables are told, also of those that are observed
    scopes = net.plan(order=list(range(n))).plan.factor_scopes
    plan = Restriction(net.cardinality, scopes, seen).plans(list(range(n)))[0]
    whole = Whole(plan, tables(net), scopes, seen)
    assert flow.make_flow(plan, whole.largest, 4, whole=whole) is None


@needs_compiler
def test_factors_that_nothing_changes_and_numbers_far_from_one() -> None:
    two = ["0", "1"]
    model = MarkovNetwork(
        {"a": two, "b": two, "c": two},
        [(["a", "b"], [[1e300, 2e300], [0.0, 4e300]]), (["b", "c"], [[1e-40, 2e-300], [3e-40, 5e-324]]), ([], 1e-200)],
    )
    plan = planned(model, [0, 1, 2], "pairwise")
    engine, definition = HostFlow(plan, tables(model)), reference.prepare(plan, tables(model))
    for hard in ({}, {0: 1}, {0: 1, 1: 0}, {}):
        agree(engine, definition, as_evidence(3, hard, {}))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_the_kernel_compiles_without_spills(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text(kernels.read_source("single/dataflow"), encoding="utf-8")
    command = ["nvcc", "-cubin", "-arch=sm_90", "-Xptxas", "-v", "-O3", "-std=c++17", "-o", str(tmp_path / "out.cubin")]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=True)
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill", done.stderr)]
    assert spills
    assert not any(spills), done.stderr
