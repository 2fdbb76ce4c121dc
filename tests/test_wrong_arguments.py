"""Wrong arguments of screen, series, graphs, draw and the estimators: errors of the package, or results."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import jtgpu
from jtgpu import JtgpuError, JunctionTreeClassifier, draw, graphs, learn, screen, series
from jtgpu.errors import ArgumentError, DataError
from jtgpu.formats import FileError
from tests.decisions.test_policies import oil
from tests.support.bundled import bundled

WRONG: dict[str, Any] = {
    "5": 5, "-1": -1, "nan": float("nan"), "x": "x", "None": None, "list": [], "dict": {}, "1j": 1j, "object": object(),
    "bytes": b"x", "array": np.zeros((2, 2)), "names": np.array(["a", "b"]), "scalar": np.array("x"), "lists": [["a"]],
}  # fmt: skip

ARRAYS = ("array", "names", "scalar", "lists")
X = np.sin(np.arange(40.0) ** 2)
TABLE = {"a": ["u", "v"] * 4, "b": [float(i) for i in range(8)]}
CHAIN = [[[0, 1, 0], [0, 0, 1], [0, 0, 0]]]
SCREEN = {
    "k": 2, "metric": "auto", "missing": "auto", "scale": None, "net": None, "columns": None, "backend": "cpu",
    "threads": None, "devices": None, "progress": None,
}  # fmt: skip
RUNNING = {"backend": "cpu", "threads": None, "devices": None, "progress": None}


@cache
def fitted() -> dict[str, Any]:
    """Arguments that take time."""
    net = jtgpu.load("asia")
    return {
        "net": net, "tree": net.compile("reference"), "fit": series.ar(X, 1),
        "posterior": learn.posterior({"a": [0, 1] * 10, "b": [0, 1, 1, 0] * 5}),
        "ranks": graphs.betweenness_posterior(CHAIN),
    }  # fmt: skip


def with_records(function: Callable[..., Any], **records: Any) -> Callable[..., Any]:
    """A function whose options of these records are given one by one."""

    def call(**given: Any) -> Any:
        made = {}
        for word, kind in records.items():
            fields = inspect.signature(kind).parameters
            made[word] = kind(**{k: given.pop(k) for k in [*given] if k in fields})
        return function(**given, **made)

    return call


def estimator(kind: type, **given: Any) -> None:
    """Fit an estimator."""
    data = [given.pop(name) for name in ("X", "y") if name in given]
    kind(**given).fit(*data)


NUMBER: dict[str, Any] = {
    "states": {"s": ["a", "b"], "y": float}, "parents": {"y": ["s"]}, "name": "",
    "cpts": {"s": [0.5, 0.5], "y": jtgpu.Gaussian([0.0, 1.0], sd=1.0)},
}  # fmt: skip
MIXED = jtgpu.MixedNetwork(**NUMBER).compile("reference")
SLICES = {"parents": {"s": [("s", 1)]}, "start": {"s": [0.5, 0.5]}, "static": (), "name": ""}
RULE = [[0.9, 0.1], [0.2, 0.8]]
HIDDEN = jtgpu.DynamicNetwork({"s": ["a", "b"]}, {"s": [("s", 1)]}, {"s": RULE}, start={"s": [0.5, 0.5]})
WITH_NUMBERS = jtgpu.MixedDynamicNetwork(
    NUMBER["states"], {"s": [("s", 1)], "y": ["s"]}, {**NUMBER["cpts"], "s": RULE}, start={"s": [0.5, 0.5]}
)
SEQUENCES = {"likelihood": None, "do": None, "id": None, "time": None, "on_gap": "error", "on_error": "error"}

# name: function, and right arguments; text in angle brackets is an entry of `fitted`
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "top_outliers": (
        with_records(screen.top_outliers, compute=jtgpu.Compute), {"cases": TABLE, "n": 1, "method": "auto", **SCREEN}
    ),
    "weights": (with_records(screen.weights, compute=jtgpu.Compute), {"cases": TABLE, **SCREEN}),
    "surprise": (screen.surprise, {"tree": "<tree>", "cases": [{"smoke": "no"}], "n": 1}),
    "KNNWeight": (
        lambda **given: estimator(screen.KNNWeight, **given),
        {"X": np.zeros((4, 2)), "k": 2, "contamination": 0.1, "n_outliers": None, "metric": "euclidean",
         "missing": "auto", "scale": None, "columns": None, "backend": "cpu", "threads": None},
    ),
    "JunctionTreeClassifier": (
        lambda **given: estimator(JunctionTreeClassifier, **given),
        {"X": {"a": [1, 2]}, "y": [1, 2], "structure": None, "target": "class", "pseudo_counts": 1.0, "states": None,
         "unknown": "error", "missing": "available", "order": "auto", "backend": "reference"},
    ),
    "ar": (series.ar, {"x": X, "order": 1, "demean": True, "on_error": "error", "time": None, "backend": "cpu"}),
    "whiten": (series.whiten, {"x": X, "fit": "<fit>", "time": None, "backend": "auto", "threads": None}),
    "lag_parents": (series.lag_parents, {"fit": "<fit>", "alpha": 0.05}),
    "two_slices": (series.two_slices, {"x": {"x": [1.0, 2.0, 3.0]}, "lags": 1, "bins": 2, "time": None}),
    "autocovariance": (series.autocovariance, {"x": X, "max_lag": 2, "biased": True, "demean": True, "threads": None}),
    "levinson": (series.levinson, {"r": [1.0, 0.5], "on_error": "flag", "backend": "auto", "threads": None}),
    "solve_toeplitz": (series.solve_toeplitz, {"c": [1.0, 0.5], "b": [1.0, 1.0], "backend": "auto", "threads": None}),
    "betweenness": (
        with_records(graphs.betweenness, compute=jtgpu.Compute),
        {"graph": (4, [[0, 1], [1, 2]]), "directed": None, "weight": None, "normalized": True, "endpoints": False,
         "k": None, "seed": None, "edges": False, **RUNNING},
    ),
    "betweenness_posterior": (
        with_records(graphs.betweenness_posterior, compute=jtgpu.Compute),
        {"dags": CHAIN, "variables": None, "directed": False, "quantiles": (0.5,), **RUNNING},
    ),
    "arcs": (draw.arcs, {"posterior": "<posterior>", "threshold": 0.1}),
    "heat_map": (draw.heat_map, {"posterior": "<posterior>"}),
    "trace": (draw.trace, {"posterior": "<posterior>"}),
    "layout": (draw.layout, {"model": "<net>", "nodes": None, "size": None}),
    "show": (
        draw.show,
        {"model": "<net>", "evidence": None, "posteriors": None, "targets": None, "around": None, "hops": 2,
         "most": 150, "tree": False},
    ),
    "show_ranks": (draw.show_ranks, {"model": "<net>", "betweenness": "<ranks>", "most": 150}),
    "show_series": (draw.show_series, {"x": X, "fit": "<fit>", "alpha": 0.05, "most": 8, "time": None}),
    "BayesianNetwork": (
        jtgpu.BayesianNetwork,
        {"states": {"s": ["a", "b"]}, "parents": {}, "cpts": {"s": [0.5, 0.5]}, "name": "", "attributes": None},
    ),
    "MixedNetwork": (jtgpu.MixedNetwork, NUMBER),
    "DynamicNetwork": (jtgpu.DynamicNetwork, {"states": {"s": ["a", "b"]}, "cpts": {"s": RULE}, **SLICES}),
    "MixedDynamicNetwork": (
        jtgpu.MixedDynamicNetwork,
        {**NUMBER, **SLICES, "cpts": {**NUMBER["cpts"], "s": RULE}, "parents": {"s": [("s", 1)], "y": ["s"]}},
    ),
    "changes": (
        jtgpu.load("asia").replace, {"cpt": None, "states": None, "parents": None, "rename": None, "name": None}
    ),
    "numbers": (MIXED.posteriors, {"evidence": {"y": 0.5}, "likelihood": None, "do": None}),
    "case": (MIXED.posteriors_batch, {"cases": {"y": [0.5]}, "likelihood": None, "do": None}),
    "other numbers": (MIXED.reload, {"net": MIXED.network}),
    "replace": (HIDDEN.replace, {"cpt": None, "start": None, "name": None}),
    "filter": (
        with_records(HIDDEN.compile("reference").filter, keys=learn.Keys),
        {"sequences": {"s": [["a", "b"]]}, **SEQUENCES, "targets": None, "at": None, "joints": None},
    ),
    "mpe": (
        with_records(HIDDEN.compile("reference").mpe, keys=learn.Keys),
        {"sequences": {"s": [["a", "b"]]}, **SEQUENCES},
    ),
    "predict": (
        with_records(WITH_NUMBERS.compile("reference").predict, keys=learn.Keys),
        {"sequences": {"y": [[0.0]]}, "ahead": 1, **SEQUENCES},
    ),
    "sample": (WITH_NUMBERS.compile("reference").sample, {"n": 1, "length": 1, "seed": None}),
    "fit": (
        with_records(learn.fit, em=learn.EM),
        {"structure": HIDDEN, "cases": {"s": [["a", "b"]] * 2}, "pseudo_counts": 1, "order": "auto", "start": "auto",
         "hidden": None, "weights": None, "missing": "em", "fixed": None, "restarts": 1, "seed": 0},
    ),
    "reload": (WITH_NUMBERS.compile("reference").reload, {"net": WITH_NUMBERS}),
    "text": (draw.Drawing("<svg></svg>", 1, 1, "").text, {"suffix": ".svg"}),
}  # fmt: skip


PATHS: dict[str, Callable[[Any], Any]] = {
    "load": jtgpu.load, "read": jtgpu.read, "read_evidence": lambda path: jtgpu.read_evidence(path, fitted()["net"]),
    "write": lambda path: jtgpu.write(fitted()["net"], path),
    "plan.save": lambda path: fitted()["tree"].plan.save(path),
    "plan.load": lambda path: jtgpu.NetworkPlan.load(path, fitted()["net"]), "learn.load": learn.load,
    "posterior.save": lambda path: fitted()["posterior"].save(path),
    "table.save": lambda path: learn.score_table(TABLE | {"b": list("abababab")}).save(path),
    "table.load": learn.ScoreTable.load, "drawing": lambda path: draw.show(fitted()["net"]).save(path),
    "cases": lambda path: jtgpu.cases.answer_file(fitted()["tree"], path, "o.csv"),
    "answers": lambda path: jtgpu.cases.answer_file(fitted()["tree"], __file__, path),
}  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_paths_of_a_wrong_type_are_named(name: str, tmp_path: Path) -> None:
    for path in (5, None, b"x", [], ["x"], np.array("x"), object()):
        with pytest.raises(ArgumentError, match=r"must be a (path|string)"):
            PATHS[name](path)
    for path in ("", tmp_path / "none" / "x.npz", tmp_path):
        with pytest.raises(JtgpuError):
            PATHS[name](path)


def test_the_options_of_a_file_of_cases_are_checked(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("xray\nyes\n")
    paths, answer = (tmp_path / "c.csv", tmp_path / "o.csv"), cast(Any, jtgpu.cases.answer_file)
    for name in ("do", "quote", "encoding", "delimiter", "compression"):
        for value in (5, np.zeros((2, 2)), object()):
            with pytest.raises(JtgpuError, match=f"{name} must be"):
                answer(fitted()["tree"], *paths, **{name: value})
    with pytest.raises(ArgumentError, match="encoding must be the name of an encoding, not the str 'x'"):
        jtgpu.cases.answer_file(fitted()["tree"], *paths, encoding="x")


COLUMNS = {"a": ["u", "v"] * 10, "b": ["x", "y", "y", "x"] * 5}
LETTERS = {"s": [["a", "b"]] * 2}
# name: function, right arguments, and the arguments that are records of options
RECORDS: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "fit": (learn.fit, {"structure": {"a": ["b"]}, "cases": COLUMNS}, "em keys read compute"),
    "fit of sequences": (learn.fit, {"structure": HIDDEN, "cases": LETTERS}, "em keys read compute"),
    "fit of numbers": (
        learn.fit, {"structure": {"b": ["a"]}, "cases": TABLE, "continuous": "gaussian"}, "em keys read compute"
    ),
    "structure": (learn.structure, {"data": COLUMNS}, "constraints search read compute"),
    "posterior": (learn.posterior, {"data": COLUMNS}, "constraints search chains read compute"),
    "score_table": (learn.score_table, {"data": COLUMNS}, "read compute"),
    "StructureLearner": (
        lambda **given: estimator(learn.StructureLearner, X=COLUMNS, **given), {},
        "constraints search chains read compute",
    ),
    "validate": (
        learn.validate, {"model": {"a": ["b"]}, "frame": COLUMNS, "target": "a", "folds": 2}, "read em compute"
    ),
    "top_outliers": (screen.top_outliers, {"cases": TABLE, "n": 1, "k": 2}, "compute"),
    "weights": (screen.weights, {"cases": TABLE, "k": 2}, "compute"),
    "betweenness": (graphs.betweenness, {"graph": (4, [[0, 1], [1, 2]])}, "compute"),
    "betweenness_posterior": (graphs.betweenness_posterior, {"dags": CHAIN}, "compute"),
    **{
        f"{name} of a {type(net).__name__}": (
            cast(Any, getattr(net.compile("reference"), name)), cast(Any, {"sequences": given, **more}), "keys"
        )
        for net, given in ((HIDDEN, LETTERS), (WITH_NUMBERS, {"y": [[0.0]]}))
        for name, more in (
            ("filter", {}), ("smooth", {}), ("predict", {}), ("mpe", {}), ("log_likelihood", {}), ("sample", {"n": 1})
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_arguments_that_are_records_of_options_are_named(name: str) -> None:
    function, given, records = RECORDS[name]
    function(**given)
    for record in records.split():
        for value in (5, "gpuu", {}, [], object(), jtgpu.ReadOptions):
            with pytest.raises(ArgumentError, match=rf"^{record} must be "):
                function(**given, **{record: value})
        if name != "StructureLearner":  # where None is the record without options
            with pytest.raises(ArgumentError, match=rf"^{record} must be .*not None"):
                function(**given, **{record: None})


def test_options_of_reading_that_a_function_does_not_use_are_errors() -> None:
    for function in (learn.structure, learn.posterior, learn.score_table):
        for given in ({"codes": "index"}, {"chunk": 3}):
            with pytest.raises(ArgumentError, match=f"{next(iter(given))}= is not offered with"):
                cast(Any, function)(COLUMNS, read=jtgpu.ReadOptions(**given))
    for given in ({"constant": "drop"}, {"chunk": 3}):
        with pytest.raises(ArgumentError, match="is not offered with validate"):
            learn.validate({"a": ["b"]}, COLUMNS, "a", folds=2, read=jtgpu.ReadOptions(**cast(Any, given)))
    for tree in (HIDDEN.compile("reference"), WITH_NUMBERS.compile("reference")):
        for more in ({"keys": learn.Keys(id="x")}, {"codes": "index"}):
            with pytest.raises(ArgumentError, match="with sequences only"):
                tree.sample(1, length=3, **more)


def test_arrays_of_sequences_have_one_shape() -> None:
    tree = WITH_NUMBERS.compile("reference")
    for shape in ((1, 2), (4, 1)):
        with pytest.raises(DataError, match=r"'[sy]' has shape"):
            tree.filter({"y": np.zeros(shape), **LETTERS})


def test_wrong_types_differ_from_errors_below() -> None:
    # an error of a function of the user stays as it is, if all arguments are of the right types
    def score(*_: Any) -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        learn.score_table(TABLE | {"b": list("abababab")}, score=score)
    for call, says in (
        (lambda: jtgpu.load("asia", kind=5), "kind must be"),  # type: ignore[call-overload]
        (lambda: fitted()["net"].merge_states("lung", 5, "x"), "states"),
        (lambda: jtgpu.write(5, "x.net"), "net must be"),  # type: ignore[arg-type]
        (lambda: jtgpu.NoisyOr(5), "links must be"), (lambda: jtgpu.NoisyMax(5), "effects must be"),  # type: ignore[arg-type]
        (lambda: learn.score_table(TABLE, max_cells=1.5), "max_cells must be an integer"),  # type: ignore[arg-type]
        (lambda: fitted()["tree"].predict({"xray": ["yes"]}, do=5), "do must be"),
        (lambda: fitted()["tree"].sample(2).with_numbers(seed=1.5), "seed must be"),
        (lambda: jtgpu.network(5), "structure must be"), (lambda: jtgpu.network("a", seed=-1), "seed must be"),  # type: ignore[arg-type]
        (lambda: MIXED.network.compile(order=5), "order must be"),  # type: ignore[arg-type]
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=says):
            call()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_raise_errors_of_the_package_that_name_them(name: str) -> None:
    function, given = CALLS[name]
    right = {k: fitted()[v[1:-1]] if isinstance(v, str) and v[:1] == "<" else v for k, v in given.items()}
    messages: list[tuple[str, str, str]] = []
    for parameter in right:
        for name, value in WRONG.items():
            try:
                function(**right | {parameter: value})
            except ArgumentError as error:
                if name not in ARRAYS:  # of which a message may show an element
                    messages.append((str(error), parameter, repr(value)))
            except JtgpuError:  # of the data: they name a column, variable or state
                pass
    assert not [m for m in messages if m[1] not in m[0] and m[2] not in m[0]]


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("top_outliers", "progress"), ("weights", "progress"), ("betweenness", "progress"), ("betweenness", "seed"),
        ("betweenness_posterior", "progress"), ("betweenness_posterior", "threads"), ("show", "tree"),
        ("betweenness_posterior", "quantiles"), ("arcs", "posterior"), ("heat_map", "posterior"),
        ("trace", "posterior"), ("layout", "model"), ("lag_parents", "fit"), ("whiten", "fit"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(name: str, parameter: str) -> None:
    function, given = CALLS[name]
    right = {k: fitted()[v[1:-1]] if isinstance(v, str) and v[:1] == "<" else v for k, v in given.items()}
    with pytest.raises(ArgumentError, match=rf"{parameter} must be .*not the object"):
        function(**right | {parameter: object()})


@pytest.mark.parametrize("value", [1j, np.inf])
def test_complex_and_infinite_numbers_are_errors(value: complex) -> None:
    row = [1.0, 2.0, value, 3.0]
    array = np.array([row, [4.0, 1.0, 2.0, 0.0]])
    for call in (
        lambda: screen.weights({"x": row}, 2), lambda: screen.weights(array.T, 2),
        lambda: screen.weights({"x": row}, 2, "hamming"), lambda: screen.top_outliers(array.T, 1, 2),
        lambda: screen.KNNWeight(k=2).fit(array.T), lambda: series.two_slices({"x": row}), lambda: series.ar(array, 1),
        lambda: series.two_slices(array), lambda: series.two_slices(array, bins=None),
        lambda: series.whiten(array[0], fitted()["fit"]), lambda: series.solve_toeplitz(array[0], np.ones(4)),
        lambda: graphs.betweenness((4, [[0, 1], [1, 2], [2, 3], [3, 0]]), weight=row),
        lambda: JunctionTreeClassifier(backend="reference").fit(array.T, [0, 1, 0, 1]),
        lambda: JunctionTreeClassifier(backend="reference").fit([[1], [2], [3], [4]], row),
    ):  # fmt: skip
        with pytest.raises((DataError, ArgumentError)):
            call()


def test_integers_above_all_floats_and_lags_above_all_memory() -> None:
    huge, half, tree = 10**400, [0.5, 0.5], bundled("asia").compile("cpu")
    net = jtgpu.DynamicNetwork({"x": ["a", "b"]}, {"x": [("x", 1)]}, {"x": [half] * 2}, start={"x": half})
    slices = net.compile("cpu")
    for call in (
        lambda: tree.sample(huge), lambda: tree.expected_counts({"smoke": ["yes"]}, weights=huge),
        lambda: slices.sample(2, length=huge), lambda: slices.predict([["a"]], ahead=huge),
        lambda: series.two_slices({"x": [1.0, 2.0]}, lags=huge), lambda: series.two_slices({"x": [1.0, 2.0]}, 10**12),
        lambda: learn.fit({"x": []}, {"x": [1, 2]}, weights=[1, huge]),
        lambda: learn.fit({"x": []}, {"x": [1, 2], "w": [1, huge]}, weights="w"),
        lambda: learn.fit({"x": []}, {"x": [1, 2]}, pseudo_counts=huge),
        lambda: learn.fit(net, {"x": ["a"]}, keys=learn.Keys(), weights=[huge]),
    ):  # fmt: skip
        with pytest.raises(jtgpu.JtgpuError):
            call()
    x = {"x": [3.0, 1.0, 2.0, 5.0]}
    assert series.two_slices(x, bins=10**12) == series.two_slices(x, bins=4)


def test_drawings_are_saved_or_say_why_not(tmp_path: Path) -> None:
    drawing = draw.show(fitted()["net"])
    drawing.save(tmp_path / "a.svg")
    for path, says in ((tmp_path / "none" / "a.svg", "does not exist"), (tmp_path / "b.svg", "is a folder")):
        (tmp_path / "b.svg").mkdir(exist_ok=True)
        with pytest.raises(FileError, match=says):
            drawing.save(path)
    with pytest.raises(ArgumentError, match="path"):
        drawing.save(5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"not as '\.png': convert the SVG, for example with cairosvg"):
        drawing.save(tmp_path / "a.png")


def test_cycles_of_dags_are_shown() -> None:
    cyclic = [*CHAIN, [[0, 1, 0], [0, 0, 1], [1, 0, 0]]]
    with pytest.raises(DataError, match=r"graph 1 has a cycle, (x0 -> x1 -> x2|x1 -> x2 -> x0|x2 -> x0 -> x1)"):
        graphs.betweenness_posterior(cyclic)
    with pytest.raises(DataError, match="graph 0 has a cycle"):
        graphs.betweenness_posterior(np.array([[2, 1]], np.uint64))
    networkx = pytest.importorskip("networkx")
    with pytest.raises(DataError, match=r"a -> b -> a|b -> a -> b"):
        graphs.betweenness_posterior([networkx.DiGraph([("a", "b"), ("b", "a")])])
    assert len(graphs.betweenness_posterior([networkx.cycle_graph(3)]).values) == 1


RESULTS: dict[str, Callable[[], Any]] = {
    "Autoregression": lambda: series.ar(X, 2),
    "Predictors": lambda: series.levinson([1.0, 0.5]),
    "Outliers": lambda: screen.top_outliers(TABLE, 1, 2),
    "KNNWeight": lambda: screen.KNNWeight(k=2).fit(np.eye(5)),
    "BetweennessPosterior": lambda: graphs.betweenness_posterior(CHAIN),
    "Drawing": lambda: draw.show(fitted()["net"]),
    "Layout": lambda: draw.layout(fitted()["net"]),
    "JunctionTreeClassifier": lambda: JunctionTreeClassifier(backend="reference").fit({"a": [1, 2, 1]}, [0, 1, 0]),
}


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("again", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
def test_results_can_be_copied(name: str, again: Callable[[Any], Any]) -> None:
    found = RESULTS[name]()
    other = again(found)
    assert type(other) is type(found)
    assert repr(other) == repr(found)


PACKAGES = ["", ".learn", ".series", ".graphs", ".screen", ".draw", ".cases"]


@pytest.mark.parametrize("package", PACKAGES)
def test_unknown_keywords_of_every_public_function_are_named(package: str) -> None:
    module = importlib.import_module(f"jtgpu{package}")
    for name in module.__all__:
        function = getattr(module, name)
        if not inspect.isfunction(function) or name in ("is_frame", "widget"):
            continue
        needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        given = [None] * sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in needed)
        with pytest.raises(ArgumentError, match=r"\(\) has no argument 'unknwon'"):
            function(*given, unknwon=1)
        assert pickle.loads(pickle.dumps(function)) is function


NETWORKS: dict[str, Callable[[], Any]] = {
    "Bayesian": lambda: fitted()["net"], "decision": oil,
    "Markov": lambda: jtgpu.MarkovNetwork({"s": ["a", "b"]}, [(["s"], [1.0, 2.0])]), "dynamic": lambda: HIDDEN,
    "mixed": lambda: MIXED.network, "mixed dynamic": lambda: WITH_NUMBERS,
}  # fmt: skip


# accessors that loops call (see `check_keywords`), and what queries use of a tree
UNCHECKED = (
    "index", "states", "state_index", "answer", "cached", "close", "for_sets", "impossible", "intervened", "resolved",
)  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_unknown_keywords_of_networks_and_trees_suggest_the_nearest(name: str) -> None:
    net = NETWORKS[name]()
    tree = net.compile("reference")
    for owner in (net, tree, type(net)):
        for method in dir(owner):
            function = getattr(owner, method)
            if method.startswith("_") or not inspect.isroutine(function) or function.__module__[:5] != "jtgpu":
                continue
            if method in UNCHECKED:
                continue
            parameters = inspect.signature(function).parameters.values()
            if any(p.kind is p.VAR_KEYWORD for p in parameters):
                continue
            with pytest.raises(ArgumentError, match=r"\(\) has no argument 'unknwon'"):
                function(unknwon=1)
    with pytest.raises(ArgumentError, match="'memory_limt'; did you mean 'memory_limit'"):
        net.compile("reference", memory_limt=1)


def test_unknown_keywords_suggest_those_of_the_function_called() -> None:
    net, tree = fitted()["net"], fitted()["tree"]
    sequences, numbers = cast(Any, HIDDEN.compile("reference")), cast(Any, WITH_NUMBERS.compile("reference"))
    calls: dict[str, Callable[[], Any]] = {
        r"plan\(\) has no argument 'orders'; did you mean 'order'": lambda: net.plan(orders="x"),
        r"validate\(\) has no argument 'fold'; did you mean 'folds'": lambda: learn.validate(net, TABLE, "a", fold=3),
        "did you mean 'order'": lambda: net.compile(ordr="x"),
        "the backend 'cpu' has no option 'thread'; did you mean 'threads'": lambda: net.plan().compile("cpu", thread=1),
        r"structure\(\) has no argument 'zeros'; its arguments": lambda: cast(Any, learn.structure)(TABLE, zeros="x"),
        r"structure\(\) has no argument 'max_table'; its": lambda: cast(Any, learn.structure)(TABLE, max_table=9),
        r"load\(\) has no argument 'pth'; did you mean 'path'": lambda: cast(Any, jtgpu.NetworkPlan).load(pth="x"),
        r"Online\(\) has no argument 'expereince'": lambda: cast(Any, learn.Online)(net, expereince=1),
        r"KNNWeight\(\) has no argument 'metrik'": lambda: cast(Any, screen.KNNWeight)(metrik="x"),
        r"it is chains=Chains\(steps=...\)": lambda: cast(Any, learn.StructureLearner)(steps=5),
        r"'rstarts'; did you mean em=EM\(restarts=...\)": lambda: cast(Any, learn.fit)(net, TABLE, rstarts=5),
        r"it is read=ReadOptions\(chunk=...\)": lambda: cast(Any, learn.fit)(net, TABLE, chunk=5),
        r"StructureLearner\(\) has no argument 'scor'": lambda: cast(Any, learn.StructureLearner)(scor="bic"),
        r"serve\(\) has no argument 'tokn'; did you mean 'token'": lambda: tree.serve(tokn="x"),
        "did you mean 'soft'": lambda: tree.resolve({}, softt={}),
        "did you mean 'backend'": lambda: tree.posteriors().to_frame(bakend="polars"),
        "did you mean 'likelihood'": lambda: numbers.filter({"y": [[0.0]]}, likelihod=None),
        r"did you mean keys=Keys\(on_gap=": lambda: numbers.filter({}, on_gapp="error"),
        r"did you mean em=EM\(iterations=": lambda: cast(Any, learn.fit)(net, TABLE, itertions=3),
        r"it is keys=Keys\(time=": lambda: sequences.filter({}, time="day"),
    }  # fmt: skip
    for says, call in calls.items():
        with pytest.raises(ArgumentError, match=says):
            call()


LARGE: dict[str, Callable[[], Any]] = {
    "Fit": lambda: learn.fit(jtgpu.load("alarm"), jtgpu.load("alarm").compile("reference").sample(50, seed=1)),
    "Validation": lambda: learn.validate(
        jtgpu.load("asia"), jtgpu.load("asia").compile("reference").sample(200, seed=1), "lung"
    ),
    "NumberValidation": lambda: learn.validate(MIXED.network, MIXED.sample(200, seed=1), "y"),
    "Fit of sequences": lambda: learn.fit(HIDDEN, {"s": [["a", "b", "a"] * 20] * 30}),
    "Plan": lambda: jtgpu.load("alarm").plan().plan, "Layout": lambda: draw.layout(jtgpu.load("alarm")),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LARGE)
def test_the_representation_of_a_result_is_a_summary(name: str) -> None:
    shown = repr(LARGE[name]())
    assert len(shown) < 2500
    assert "array(" not in shown
