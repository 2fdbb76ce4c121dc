"""Arguments of wrong types and values: every public method raises an error of jtgpu that says what was expected."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, EvidenceError, JtgpuError, TableTooLarge
from jtgpu.model.states import StateNumber
from tests.conftest import ROOT
from tests.support.trees import compiled

WRONG = [
    None, True, -1, 0, 5, 10**30, 0.5, -2.5, math.nan, math.inf, 1j, "", "x", "5", "xray", b"x", [], [[]], ["x"],
    [None],
    [["lung"]], [1, "x"], {}, {"x": 1}, {None: 1}, {"xray": None}, {"xray": "x"}, {"xray": {"yes": 1, "no": "x"}},
    {"xray": {"yes": 1}}, {"xray": {"yes": 1, 0: 1}}, {"xray": [1, "x"]}, {"xray": [[1], [1, 2]]},
    {"xray": [10**400, 1]},
    {"xray": ["0.5", "0.5"]}, {"xray": [1, 2, 3]}, {"xray": [-1, 2]}, {"xray": [math.nan, 1]}, {"xray": 1j},
    {"xray": set()}, {"xray": object()}, {"xray": np.zeros((2, 2))}, {"xray": b"yes"}, {"xray": [0, 0]}, {5: 5},
    {99: 0},
    {-1: 0}, {(1, 2): 0}, {"xray": 10**30}, {"xray": math.nan}, set(), {1, "x"}, (), object(), object, len, np.zeros(0),
    np.zeros((2, 2)), np.array("x"), np.array(None), np.float64(0.5), np.int64(-1), np.bool_(True), Fraction(1, 3),
    range(3), iter("x"), slice(3), Ellipsis, "x" * 100_000, list(range(100_000)),
]  # fmt: skip
FRAMES = ("predict", "predict_proba")  # helper-free: their frames are tested in tests/cases
SKIPPED = {*FRAMES, "close", "reload", "serve"}  # the arguments of servers are tested in tests/serve


def arguments(method: Callable[..., Any]) -> Iterator[str]:
    """Names of the arguments of a method; those of ``**more: Unpack[EvidenceOptions]`` too."""
    for name, parameter in inspect.signature(method).parameters.items():
        if name == "self":
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            yield from ("likelihood", "soft", "do")
        else:
            yield name


RIGHT: dict[str, Any] = {
    "variable": "lung", "variables": ["lung", "bronc"], "given": ["smoke"], "target": "lung",
    "evidence": {"xray": "yes"},
    "cases": {"xray": ["yes", "no", None]}, "n": 3, "question": "P(lung)",
}  # fmt: skip


def needed(owner: Any, method: str) -> dict[str, Any]:
    """Right values of the arguments that a method needs."""
    found = {}
    for name, parameter in inspect.signature(getattr(owner, method)).parameters.items():
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            found[name] = RIGHT.get(name)
    if method == "sensitivity":
        found["target"] = ("lung", "yes")
    return found


METHODS = [
    (name, argument)
    for name, method in inspect.getmembers(jtgpu.JunctionTree, inspect.isfunction)
    if not name.startswith("_") and name not in SKIPPED and method.__qualname__.startswith("JunctionTree.")
    for argument in arguments(method)
]


@pytest.fixture(scope="module")
def small(request: pytest.FixtureRequest) -> jtgpu.JunctionTree:
    return compiled(jtgpu.read(ROOT / "nets" / "asia.net"), "reference")


def throw(call: Callable[..., Any], argument: str, given: dict[str, Any]) -> None:
    """Call with every wrong value: an answer or an error of jtgpu, in a short message that is no repetition."""
    messages = []
    for wrong in WRONG:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                call(**{**given, argument: iter(list(wrong)) if isinstance(wrong, Iterator) else wrong})
        except JtgpuError as error:
            messages.append(str(error))
        except Exception as error:
            raise AssertionError(f"{argument}={str(wrong)[:80]}: {type(error).__name__}: {error}") from error
    assert all(0 < len(m) < 1500 for m in messages)


@pytest.mark.parametrize(("method", "argument"), METHODS, ids=lambda x: str(x))
def test_methods_of_a_tree(small: jtgpu.JunctionTree, method: str, argument: str) -> None:
    throw(getattr(small, method), argument, needed(small, method))


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        (name, argument)
        for name, function in inspect.getmembers(jtgpu.Session, inspect.isfunction)
        if not name.startswith("_") and name != "close"
        for argument in arguments(function)
    ],
    ids=lambda x: str(x),
)
def test_methods_of_a_session(small: jtgpu.JunctionTree, method: str, argument: str) -> None:
    right = {
        "variable": "lung",
        "state": "yes",
        "weights": [1, 0.5],
        "probabilities": [0.5, 0.5],
        "variables": ["lung"],
    }
    with small.session({"lung": "yes"}) as session:
        required = {k: right.get(k) for k in needed(session, method)}

        def call(**given: Any) -> None:
            session.set({"lung": "yes"} if method == "retract" else None)
            getattr(session, method)(**given)
            session.posteriors()

        throw(call, argument, required)


PLAN = [
    "order",
    "time_limit",
    "memory_limit",
    "max_table",
    "seed",
    "slices",
    "lowering",
    "together",
    "cache",
    "objective",
]


@pytest.mark.parametrize("argument", [*PLAN, "workers", "n_steps", "backend"])
def test_options_of_a_plan(argument: str) -> None:
    net = jtgpu.read(ROOT / "nets" / "asia.net")
    more = {"order": "best", "n_steps": 10} if argument in ("time_limit", "n_steps", "workers") else {}
    throw(net.plan, argument, {**more, "cache": False})


@pytest.mark.parametrize("argument", ["backend", "threads", "dtype", "replan", "progress"])
def test_options_of_a_backend(argument: str) -> None:
    plan = jtgpu.read(ROOT / "nets" / "asia.net").plan()
    throw(plan.compile, argument, {"backend": "cpu"})
    throw(plan.compile, argument, {"backend": "reference"} if argument != "threads" else {"backend": "cpu"})


@pytest.mark.parametrize("argument", ["n", "spread"])
def test_results_of_a_sensitivity_analysis(small: jtgpu.JunctionTree, argument: str) -> None:
    found = small.sensitivity(("lung", "yes"))
    throw(found.tornado, argument, {})
    if argument == "n":
        throw(found.top, argument, {})


def test_calls_of_joint_tables(small: jtgpu.JunctionTree) -> None:
    joint, conditional = small.joint(["lung", "xray"]), small.conditional("lung", ["xray"])
    calls: tuple[Any, ...] = (joint.__getitem__, conditional.__getitem__, small.posterior("lung").__getitem__)
    for call in calls:
        for wrong in WRONG:
            try:
                call(wrong)
            except (JtgpuError, KeyError):
                pass
            except Exception as error:
                raise AssertionError(f"{str(wrong)[:80]}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.mpe(k=0), "k must be an integer of at least 1, not 0"),
        (lambda t: t.mpe(k=math.nan), "k must be an integer of at least 1, not nan"),
        (lambda t: t.mpe(k="3"), "k must be an integer of at least 1, not the str '3'"),
        (lambda t: t.sample(-1), "n must be an integer of at least 0, not"),
        (lambda t: t.sample(3, seed="x"), "seed must be None, an integer of at least 0, or a numpy.random.Generator"),
        (lambda t: t.joint(None), "variables must be one or several names or numbers, .* not None"),
        (lambda t: t.posteriors(targets=0.5), "targets must be one or several names or numbers, .* not 0.5"),
        (lambda t: t.ask(5), r"question must be a text such as 'P\(lung | xray=yes\)', not the int 5"),
        (lambda t: t.map(["lung"], memory_limit="x"), "memory_limit must be a size such as 8GiB"),
        (lambda t: t.map(["lung"], max_table="x"), "max_table must be a number above 0, not the str 'x'"),
        (lambda t: t.joint(["lung"], how="case"), "how must be 'auto', 'cases' or 'together', .*did you mean 'cases'"),
        (
            lambda t: t.posteriors(likelihood={"xray": {"yes": 1, "no": "x"}}),
            "the likelihood of 'xray' for the state 'no' must be a number, got 'x'",
        ),
        (
            lambda t: t.posteriors(soft={"xray": {"yes": 1, "no": "x"}}),
            "soft evidence on 'xray' for the state 'no' must be a number, got 'x'",
        ),
        (
            lambda t: t.posteriors(do={"xray": {"yes": 1, "no": "x"}}),
            "do on 'xray' for the state 'no' must be a number, got 'x'",
        ),
        (lambda t: t.posteriors(likelihood={"xray": {"yes": 1, StateNumber(0): 2, "no": 1}}), "the state 'yes' twice"),
    ],
)
def test_messages(small: jtgpu.JunctionTree, call: Callable[[jtgpu.JunctionTree], Any], message: str) -> None:
    with pytest.raises((ArgumentError, EvidenceError), match=message):
        call(small)


def test_messages_of_options() -> None:
    net = jtgpu.read(ROOT / "nets" / "asia.net")
    for options, message in (
        ({"slices": "x"}, "slices must be \"auto\" or a list of variables, not the str 'x'"),
        ({"slices": 1}, 'slices must be "auto" or a list of variables, not the int 1'),
        ({"seed": "x"}, "seed must be an integer of at least 0, not the str 'x'"),
        ({"memory_limit": 0}, "memory_limit must be a number above 0"),
        ({"lowering": "pair"}, "lowering must be 'pairwise', 'clique' or 'shallow', not the str 'pair'"),
        ({"order": 5}, r"order must be a method \(.*not the int 5"),
    ):
        with pytest.raises(JtgpuError, match=message):
            net.plan(**options)
    assert net.plan(slices="lung").slices == ("lung",)  # one variable, as everywhere
    wrong: tuple[Any, ...] = (-1, 0, 1.5, "2", True)
    for threads in wrong:
        with pytest.raises(ArgumentError, match="threads must be an integer of at least 1, not"):
            net.plan().compile("cpu", threads=threads)
    with pytest.raises(TypeError, match="no option 'thread'"):
        net.plan().compile("cpu", thread=1)  # type: ignore[call-arg]


def test_sizes_that_do_not_fit_are_refused_before_memory_is_taken(small: jtgpu.JunctionTree) -> None:
    alarm = compiled(jtgpu.read(ROOT / "nets" / "alarm.net"), "cpu")
    for n in (10**10, 10**30):
        with pytest.raises(TableTooLarge, match=r"samples of 37 variables need .*; draw at most [0-9,]+ in one call"):
            alarm.sample(n)
        no_limit: Any = math.inf
        with pytest.raises(TableTooLarge, match="explanations need about"):
            alarm.map(alarm.model.variables[:30], k=n, max_table=no_limit, memory_limit=no_limit)
    for n in (10**7, 10**30):  # of the first, the time
        with pytest.raises(TableTooLarge, match=r"explanations need .* s; the limits .* at most [0-9,]+, for the"):
            alarm.mpe(k=n)
    assert len(small.mpe(k=10**30).ranked) == 128  # all that are possible
    assert len(small.mpe({"lung": "yes"}, k=10**9).ranked) < 128


def test_soft_evidence_of_zero_warns_of_nothing(small: jtgpu.JunctionTree) -> None:
    for soft in (
        {"lung": [1, 0]},
        {"lung": [0, 1], "tub": [1, 0]},
        {"lung": [1, 0], "bronc": [0, 1], "xray": [0.5, 0.5]},
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = small.posteriors(soft=soft)
        for v, p in soft.items():
            assert np.abs(np.array([found[v][i] for i in range(2)]) - p).max() < 1e-10
    net = jtgpu.BayesianNetwork({"a": ["x", "y"]}, {}, {"a": [1e-300, 1.0]})
    with warnings.catch_warnings(), compiled(net, "reference") as tree:
        warnings.simplefilter("error")
        assert tree.posterior("a", soft={"a": [1, 0]})["x"] == 1


def test_messages_repeat_no_large_values(small: jtgpu.JunctionTree) -> None:
    big = "x" * 5_000_000
    net = jtgpu.BayesianNetwork(
        {"a": [big, "y"], "b" * 5_000_000: ["x"]}, {}, {"a": [0.5, 0.5], "b" * 5_000_000: [1.0]}
    )
    with compiled(net, "reference") as tree:
        for call in (
            lambda: tree.posteriors({"a": "z" * 5_000_000}),
            lambda: tree.posteriors({"a": "z"}),
            lambda: tree.posteriors({big: "z"}),
            lambda: tree.posteriors({"a": [1.5] * 10**6}),
            lambda: tree.posteriors(likelihood={"a": {big: 1}}),
            lambda: tree.posteriors({"a": big, "b" * 5_000_000: {big}}),
            lambda: tree.ask(f"P({big})"),
            lambda: tree.posteriors_batch({"a": [big, "z" * 5_000_000]}),
        ):
            with pytest.raises(JtgpuError) as caught:
                call()
            assert len(str(caught.value)) <= 4100


def test_misspelt_keywords_of_queries(small: jtgpu.JunctionTree) -> None:
    calls: list[tuple[Any, str]] = [
        (lambda t: t.value_of_information("lung", cost={}), "information.. has no argument 'cost'; its arguments"),
        (lambda t: t.posterior("lung", evidnce={}), "posterior.. has no argument 'evidnce'; did you mean 'evidence'"),
        (lambda t: t.posteriors_batch({}, target=[]), "posteriors_batch.. has no .*; did you mean 'targets'"),
        (lambda t: t.predict_proba({}, on_eror="flag"), "predict_proba.. has no .*; did you mean 'on_error'"),
        (lambda t: t.mpe(K=3), "mpe.. has no argument 'K'; did you mean 'k'"),
        (lambda t: t.session(likelyhood={}), "session.. has no .*; did you mean 'likelihood'"),
        (lambda t: t.session().set(dos={}), "set.. has no argument 'dos'; did you mean 'do'"),
    ]
    for call, says in calls:
        with pytest.raises(ArgumentError, match=says):
            call(small)
