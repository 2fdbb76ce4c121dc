"""Dynamic networks with numbers equal the unrolled mixed network; streams; files; bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from tests.support.examples import some

NAN = np.nan


def template(rng: np.random.Generator, lagged: bool = False) -> jtgpu.MixedDynamicNetwork:
    """Two hidden variables, and numbers with one, two or no parents with states, and a numeric parent."""
    states: Any = {"a": ["0", "1", "2"], "b": ["u", "v"], "x": float, "y": float, "z": float, "w": float}
    parents: Any = {"a": [("a", 1)], "b": ["a", ("b", 1)], "x": ["a"], "y": ["a", "b"], "w": ["b", "x"]}
    more: Any = {}
    gaussian = jtgpu.Gaussian
    cpts: Any = {
        "a": rng.dirichlet(np.ones(3), 3), "b": rng.dirichlet(np.ones(2), (3, 2)),
        "x": gaussian(rng.normal(size=3), sd=[0.5, 1.0, 2.0]), "y": gaussian(rng.normal(size=(3, 2)), sd=0.8),
        "z": gaussian(1.5, sd=2.0), "w": gaussian([0.0, 1.0], {"x": [1.0, -0.5]}, sd=0.7),
    }  # fmt: skip
    if lagged:
        states, parents = {**states, "v": float}, {**parents, "v": ["b", ("v", 1)]}
        cpts["v"] = gaussian([0.2, 1.0], {"v[t-1]": 0.6}, sd=0.4)
        more["v"] = gaussian([0.0, 3.0], sd=1.0)
    start = {"a": rng.dirichlet(np.ones(3)), "b": rng.dirichlet(np.ones(2), 3), **more}
    return jtgpu.MixedDynamicNetwork(states, parents, cpts, start=start)


def unrolled(net: jtgpu.MixedDynamicNetwork, length: int) -> jtgpu.MixedNetwork:
    """The mixed network of so many slices."""
    states: Any = {}
    parents: Any = {}
    cpts: Any = {}
    for t in range(length):
        for v in net:
            name, own = f"{v}[{t}]", [(p, lag) for p, lag in net.parents(v) if lag <= t]
            parents[name] = [f"{p}[{t - lag}]" for p, lag in own]
            states[name] = net.states(v) or float
            if v in net.numbers:
                g = net.gaussian(v, t)
                numeric = [(p, lag) for p, lag in own if p in net.numbers]
                labels = [f"{p}[t-{lag}]" if lag else p for p, lag in numeric]
                given = {f"{p}[{t - lag}]": g.coefficients[c] for (p, lag), c in zip(numeric, labels, strict=True)}
                cpts[name] = jtgpu.Gaussian(g.mean, given, g.sd)
            else:
                cpts[name] = net.cpt(v, t)
    return jtgpu.MixedNetwork(states, parents, cpts)


def drawn(net: jtgpu.MixedDynamicNetwork, n: int, length: int, seed: int) -> dict[str, Any]:
    """Sequences of the numbers alone."""
    sample = unrolled(net, length).compile("cpu").sample(n, seed=seed)
    return {y: np.array([np.asarray(sample[f"{y}[{t}]"], np.float64) for t in range(length)]).T for y in net.numbers}


@pytest.mark.parametrize("seed", some(6, 2))
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_answers_equal_those_of_the_unrolled_network(seed: int, backend: Any) -> None:
    rng = np.random.default_rng(seed)
    net, length = template(rng, seed % 2 == 1), 4
    data = drawn(net, 3, length, seed)
    data["w"][0, 1] = data["y"][1, 2] = data["z"][2] = data["x"][2, 3] = data["w"][2, 3] = NAN
    tree, whole = net.compile(backend), unrolled(net, length).compile("cpu")
    b = np.array([["u", None, None, None], [None] * 4, [None, None, "v", None]], object)
    smooth = tree.smooth({**data, "b": b})
    for i in range(3):
        seen: dict[str, Any] = {f"b[{t}]": b[i, t] for t in range(length) if b[i, t] is not None}
        seen |= {f"{y}[{t}]": x[i, t] for y, x in data.items() for t in range(length) if not np.isnan(x[i, t])}
        expected = whole.posteriors(seen)
        for t in range(length):
            assert np.allclose(smooth["a"][i, t], np.asarray(expected[f"a[{t}]"]), rtol=0, atol=1e-9)
            for y in ("x", "y", "z"):
                if f"{y}[{t}]" not in seen:
                    assert smooth.mean[y][i, t] == pytest.approx(expected[f"{y}[{t}]"].mean, abs=1e-8)
                    assert smooth.sd[y][i, t] == pytest.approx(expected[f"{y}[{t}]"].sd, abs=1e-8)
                else:
                    assert (smooth.mean[y][i, t], smooth.sd[y][i, t]) == (data[y][i, t], 0.0)
        assert smooth.log_evidence[i] == pytest.approx(expected.log_evidence, rel=1e-10)
    assert np.allclose(tree.log_likelihood({**data, "b": b}), smooth.log_evidence, rtol=1e-12)
    filtered = tree.filter({**data, "b": b}, at="last")
    assert np.allclose(filtered["b"], smooth["b"][:, -1], atol=1e-12)
    ahead = tree.predict({**data, "b": b}, ahead=2, targets=["a", "x"])
    longer = {**{y: np.pad(x, ((0, 0), (0, 2)), constant_values=NAN) for y, x in data.items()}}
    again = tree.filter({**longer, "b": np.concatenate([b, np.full((3, 2), None)], axis=1)}, at=[4, 5])
    assert np.allclose(ahead["a"], again["a"], atol=1e-12)
    assert np.allclose(ahead.mean["x"], again.mean["x"], atol=1e-12)
    assert {"x.mean", "x.sd"} <= set(ahead.to_frame("pyarrow").column_names)
    best = tree.mpe({**data, "b": b})
    assert set(best) == {"a", "b"}


def test_frames_gaps_and_keys() -> None:
    net = template(np.random.default_rng(1))
    data = drawn(net, 2, 3, 0)
    frame: dict[str, Any] = {"who": ["p", "p", "p", "q", "q", "q"], "day": [1, 2, 3, 1, 2, 3]}
    frame |= {y: x.ravel().tolist() for y, x in data.items()}
    tree = net.compile("cpu")
    expected = tree.smooth(data)
    answer = tree.smooth(frame, keys=jtgpu.learn.Keys(id="who", time="day"))
    assert np.array_equal(answer["a"], expected["a"])
    pandas = pytest.importorskip("pandas")
    assert np.array_equal(
        tree.smooth(pandas.DataFrame(frame), keys=jtgpu.learn.Keys(id="who", time="day"))["a"], expected["a"]
    )
    parts = [{y: x[i].tolist() for y, x in data.items()} for i in range(2)]
    assert np.array_equal(tree.smooth(parts)["a"], expected["a"])
    holes = {k: [c for i, c in enumerate(column) if i != 1] for k, column in frame.items()}
    gap = tree.smooth(holes, keys=jtgpu.learn.Keys(id="who", time="day", on_gap="empty"))
    for x in data.values():
        x[0, 1] = NAN
    assert np.allclose(gap["a"], tree.smooth(data)["a"], atol=1e-12)
    assert gap.to_frame("pyarrow").column_names[:2] == ["who", "day"]


def long_frame(net: jtgpu.MixedDynamicNetwork, n: int, length: int, seed: int, hidden: str) -> dict[str, Any]:
    """Samples as a long frame, without a hidden variable."""
    table = net.compile("cpu").sample(n, length=length, seed=seed).to_frame("pyarrow").to_pydict()
    return {v: x for v, x in table.items() if v != hidden}


def test_files_keep_all_numbers(tmp_path: Path) -> None:
    net = template(np.random.default_rng(2), True)
    path = tmp_path / "net.dynamic.json"
    jtgpu.write(net, path)
    again = jtgpu.read(path)
    assert again == net
    assert repr(again).startswith("MixedDynamicNetwork")
    assert net.replace() == net
    with pytest.raises(jtgpu.FormatError, match=r"write \.dynamic\.json"):
        jtgpu.write(net, tmp_path / "net.xdsl")
    path.write_text(path.read_text().replace('"sd"', '"scale"'))
    with pytest.raises(jtgpu.ParseError, match="expected an object with mean"):
        jtgpu.read(path)


@pytest.mark.parametrize(("change", "text"), [
    ({"parents": {"s": [("s", 1), "y"], "y": []}}, "which has states"),
    ({"parents": {"s": [("s", 1)], "y": [("s", 1)]}}, "must be in the same slice"),
    ({"parents": {"s": [("s", 1)], "y": ["s", "y"]}}, "its own parent"),
    ({"parents": {"s": [("s", 1)], "y": ["s", ("y", 1)]}}, r"needs 1 Gaussian"),
    ({"cpts": {"s": [[0.9, 0.1], [0.2, 0.8]], "y": [1, 2]}}, "needs a jtgpu.Gaussian"),
    ({"cpts": {"s": [[0.9, 0.1], [0.2, 0.8]]}}, "has no Gaussian"),
    ({"states": {"s": ["0", "1"], "y": ["a"]}}, "no variable is a number"),
    ({"parents": {"s": [("s", 1)], "y": ["q"]}}, "not declared"),
    ({"parents": {"s": [("q", 1)], "y": ["s"]}}, "'s' has the parent 'q', which is not declared"),
    ({"parents": {"s": [("s", 1), "q"], "y": ["s"]}}, "'s' has the parent 'q', which is not declared"),
    ({"static": ["y"]}, "static"),
])  # fmt: skip
def test_wrong_templates(change: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {
        "states": {"s": ["0", "1"], "y": float}, "parents": {"s": [("s", 1)], "y": ["s"]},
        "cpts": {"s": [[0.9, 0.1], [0.2, 0.8]], "y": jtgpu.Gaussian([0.0, 1.0])}, "start": {"s": [0.5, 0.5]},
    }  # fmt: skip
    with pytest.raises(jtgpu.NetworkError, match=text):
        jtgpu.MixedDynamicNetwork(**(given | change))


def test_wrong_sequences() -> None:
    net = template(np.random.default_rng(3))
    tree = net.compile("cpu")
    with pytest.raises(jtgpu.DataError, match="sequence 0, slice 1: 'w' is observed, and its parent 'x' is not"):
        tree.filter({"w": [[NAN, 1.0]], "y": [[0.0, 0.0]]})
    with pytest.raises(jtgpu.DataError, match="row 0, column 'x': expected a number, got 'high'"):
        tree.filter({"x": [["high", None]]})
    with pytest.raises(jtgpu.DataError, match="infinite"):
        tree.filter({"x": [[1.0, np.inf]]})
    with pytest.raises(jtgpu.DataError, match="sequence 0, slice 0: 'w' is a target, and a numeric parent"):
        tree.filter({"y": [[1.0]]}, targets=["w"])
    with pytest.raises(jtgpu.DataError, match="named columns"):
        tree.filter(np.zeros((1, 2, 6), np.int32))
    with pytest.raises(jtgpu.ArgumentError, match="no argument"):
        tree.filter({"x": [[1.0]]}, when=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("far", [1e200, -1e308])
def test_numbers_of_density_0_are_an_error_that_names_the_slice(far: float) -> None:
    machine = jtgpu.MixedDynamicNetwork(
        {"state": ["calm", "busy"], "load": float},
        {"state": [("state", 1)], "load": ["state"]},
        {"state": [[0.9, 0.1], [0.2, 0.8]], "load": jtgpu.Gaussian([1.0, 4.0], sd=[0.5, 1.0])},
        start={"state": [0.5, 0.5]},
    )
    with pytest.raises(jtgpu.ImpossibleEvidence, match=r"slice 1: .* density 0"):
        machine.compile("cpu").smooth({"load": [[1.0, far]]})


def test_wrong_columns_and_options() -> None:
    net = template(np.random.default_rng(3))
    tree = net.compile("reference")
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ({"X1": [1.0, 2.0]}, {}, "no column of the table is a variable"),
        (
            {"who": ["p"], "x": [1.0]},
            {"keys": jtgpu.learn.Keys(id="patient")},
            "'patient' is no column of the table, which has 'who', 'x'",
        ),
        ({"x": [[1.0, 2.0], [3.0]]}, {}, "the rows of 'x' have different lengths"),
        ({"x": [1.0]}, {"do": {"x": 2.0}}, "sequence 0, slice 0: do sets 'x' to 2, and it is observed as 1"),
        ({"y": [1.0]}, {"do": {"x": "high"}}, "do on 'x' must be a number"),
        ({"y": [1.0]}, {"do": {"x": np.inf}}, "do on 'x' must be a finite number"),
        ({"y": [1.0]}, {"do": {"x": {2: 1.0}}}, "do on 'x' has the slice 2; slices are 0 to 0"),
        ({"x": [1.0]}, {"likelihood": {"y": [1.0, 2.0]}}, "likelihood has the number 'y'"),
        ({"x": [1.0]}, {"targets": ["xx"]}, "there is no variable 'xx'"),
    ]
    for given, options, message in wrong:
        with pytest.raises(jtgpu.JtgpuError, match=message):
            tree.smooth(given, **options)


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_has_the_answers_of_filter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net, length = template(rng, seed % 2 == 1), 5
    data = drawn(net, 1, length, seed)
    data["w"][0, 1] = data["y"][0, 2] = data["x"][0, 3] = data["w"][0, 3] = NAN
    tree: Any = net.compile("reference")
    b = [["u", None, None, "v", None]]
    weights = rng.random((1, length, 3)) + 0.1
    filtered = tree.filter({**data, "b": b}, likelihood={"a": weights})
    live, other = tree.stream(), tree.stream()
    for t in range(length):
        case: dict[str, Any] = {y: x[0, t] for y, x in data.items()} | {"b": b[0][t]}
        other.restore(live.state)  # another stream continues with what the first one knows
        found, again = (stream.step(case, likelihood={"a": weights[0, t]}) for stream in (live, other))
        for v in ("a", "b"):
            assert np.allclose(found[v].probabilities, filtered[v][0, t], atol=1e-12)
            assert np.array_equal(found[v].probabilities, again[v].probabilities)
        for y in ("x", "y", "z"):
            expected = filtered.mean[y][0, t], filtered.sd[y][0, t]
            assert (found[y].mean, found[y].sd) == pytest.approx(expected, abs=1e-12)
            assert np.isnan(data[y][0, t]) or (found[y].mean, found[y].sd) == (data[y][0, t], 0.0)
    assert live.log_evidence == pytest.approx(filtered.log_evidence[0], rel=1e-12)
    assert np.isfinite(live.state).all()


def test_a_step_predicts_numbers_whose_parents_were_observed() -> None:
    net = template(np.random.default_rng(1), True)
    live: Any = net.compile("reference").stream()
    live.step({"v": 2.0})
    found = live.step()
    b = found["b"].probabilities
    assert found["v"].mean == pytest.approx(b @ [0.2 + 0.6 * 2.0, 1.0 + 0.6 * 2.0])
    assert "v" not in live.step()  # its parent, v of the slice before, was not observed
    before = live.state
    with pytest.raises(jtgpu.EvidenceError, match="slice 3: 'v' is observed, and not all of its numeric parents are"):
        live.step({"v": 1.0})
    with pytest.raises(jtgpu.EvidenceError, match="'x' is a number; its value must be a finite number, not 'high'"):
        live.step({"x": "high"})
    with pytest.raises(jtgpu.EvidenceError, match="finite number, not inf"):
        live.step({"x": np.inf})
    with pytest.raises(jtgpu.ImpossibleEvidence, match="slice 3: the numbers have density 0 in every state"):
        live.step({"x": 1e200})
    with pytest.raises(jtgpu.UnknownVariable, match="q"):
        live.step({"q": 1})
    with pytest.raises(jtgpu.ArgumentError, match="state has shape"):
        live.restore(before[:-1])
    assert np.array_equal(live.state, before)


def test_joints_reload_and_the_stationary_start() -> None:
    rng = np.random.default_rng(3)
    net, other = template(rng), template(rng)
    data = drawn(net, 2, 4, 0)
    pair = ("a[t]", "a[t-1]")
    with net.compile("reference") as tree:
        found = tree.smooth(data, joints=[pair])
        assert np.allclose(found.joint[pair][:, 1:].sum(axis=3), found["a"][:, 1:], atol=1e-12)
        tree.reload(other)
        expected = other.compile("reference").smooth(data)
        assert np.array_equal(tree.smooth(data)["a"], expected["a"])
        with pytest.raises(jtgpu.PlanError, match="differs"):
            tree.reload(template(rng, True))
    limit = net.stationary().compile("reference").predict({"x": [[None]]}, ahead=3)
    assert np.allclose(limit["a"][0], limit["a"][0, :1], atol=1e-12)


def test_numbers_with_numeric_parents_are_targets_where_these_are_observed() -> None:
    rng = np.random.default_rng(4)
    net, length = template(rng, True), 4
    data = drawn(net, 2, length, 1)
    data["w"][0, 2] = data["v"][1, 3] = data["w"][1, 0] = NAN
    tree, whole = net.compile("reference"), unrolled(net, length + 1).compile("cpu")
    smooth = tree.smooth(data, targets=["w", "v"])
    for i in range(2):
        seen = {f"{y}[{t}]": x[i, t] for y, x in data.items() for t in range(length) if not np.isnan(x[i, t])}
        expected = whole.posteriors(seen)
        for y, t in [(y, t) for y in "wv" for t in range(length)]:
            if f"{y}[{t}]" in seen:
                assert (smooth.mean[y][i, t], smooth.sd[y][i, t]) == (data[y][i, t], 0.0)
            else:
                assert smooth.mean[y][i, t] == pytest.approx(expected[f"{y}[{t}]"].mean, abs=1e-9)
                assert smooth.sd[y][i, t] == pytest.approx(expected[f"{y}[{t}]"].sd, abs=1e-9)
    first = {y: x[:1] for y, x in data.items()}
    ahead = tree.predict(first, targets=["v"])
    seen = {f"{y}[{t}]": x[0, t] for y, x in first.items() for t in range(length) if not np.isnan(x[0, t])}
    assert ahead.mean["v"][0, 0] == pytest.approx(whole.posteriors(seen)[f"v[{length}]"].mean, abs=1e-9)
    assert ahead.sd["v"][0, 0] == pytest.approx(whole.posteriors(seen)[f"v[{length}]"].sd, abs=1e-9)
    assert "v.mean" in ahead.to_frame("pyarrow").column_names
    with pytest.raises(jtgpu.DataError, match=r"sequence 0, slice 5: 'v' is a target, and a numeric"):
        tree.predict(first, targets=["v"], ahead=2)


def autoregression(states: bool) -> jtgpu.MixedDynamicNetwork:
    """Slices that only a number joins."""
    names: Any = {"s": ["a", "b"]} if states else {}
    axes = [0.0, 1.0] if states else 0.0
    return jtgpu.MixedDynamicNetwork(
        {**names, "y": float}, {"y": [*names, ("y", 1)]},
        {**{v: [0.3, 0.7] for v in names}, "y": jtgpu.Gaussian(axes, {"y[t-1]": 0.5}, sd=1.0)},
        start={"y": jtgpu.Gaussian(axes, sd=2.0)},
    )  # fmt: skip


@pytest.mark.parametrize("states", [False, True])
def test_slices_that_only_numbers_join(states: bool, tmp_path: Path) -> None:
    net = autoregression(states)
    assert (net.order, net.static, net.parents("y")[-1]) == (1, (), ("y", 1))
    tree, data = net.compile("reference"), {"y": [[1.0, 0.5, 0.3]]}
    whole = net.unroll(4).compile("cpu")
    assert set(net.unroll(2)) == {f"{v}[{t}]" for v in net for t in (0, 1)}
    expected = whole.posteriors({f"y[{t}]": x for t, x in enumerate(data["y"][0])})
    assert tree.log_likelihood(data)[0] == pytest.approx(expected.log_evidence, rel=1e-12)
    ahead = tree.predict(data, targets="y")
    assert (ahead.mean["y"][0, 0], ahead.sd["y"][0, 0]) == pytest.approx((expected["y[3]"].mean, expected["y[3]"].sd))
    if states:
        assert np.allclose(tree.smooth(data)["s"][0, 2], expected["s[2]"].probabilities)
    live: Any = tree.stream()
    for x in data["y"][0]:
        live.step({"y": x})
    assert live.log_evidence == pytest.approx(expected.log_evidence, rel=1e-12)
    assert live.step()["y"].mean == pytest.approx(expected["y[3]"].mean)
    assert list(tree.mpe(data)) == ["s"] * states
    frame = long_frame(net, 30, 40, 2, "none")
    parents = {v: net.parents(v) for v in net}
    made: Any = jtgpu.learn.fit(
        parents, frame, keys=jtgpu.learn.Keys(id="sequence", time="slice"), continuous="gaussian"
    )
    assert np.allclose(made.network.gaussian("y").coefficients["y[t-1]"], 0.5, atol=0.12)
    jtgpu.write(net, tmp_path / "a.dynamic.json")
    assert jtgpu.read(tmp_path / "a.dynamic.json") == net
    assert net.replace() == net
    assert list(tree.smooth(data)) == ["s"] * states


def test_a_template_without_lags_is_an_error() -> None:
    with pytest.raises(jtgpu.NetworkError, match="no variable has a parent in an earlier slice"):
        jtgpu.MixedDynamicNetwork(
            {"s": ["a", "b"], "y": float}, {"y": ["s"]}, {"s": [0.5, 0.5], "y": jtgpu.Gaussian([0.0, 1.0])}
        )


def test_numbers_can_be_set() -> None:
    rng = np.random.default_rng(6)
    net, length = template(rng, True), 3
    data = drawn(net, 1, length, 2)
    data["x"][0, 1] = data["v"][0, 1] = NAN
    tree, whole = net.compile("reference"), unrolled(net, length)
    do: Any = {"x": {1: 0.7}, "v": {1: -0.4}, "a": {2: "1"}}
    answer = tree.smooth(data, do=do, targets=["a", "b", "w", "v"])
    seen = {f"{y}[{t}]": x[0, t] for y, x in data.items() for t in range(length) if not np.isnan(x[0, t])}
    expected = whole.compile("cpu").posteriors(seen, do={"x[1]": 0.7, "v[1]": -0.4, "a[2]": "1"})
    assert answer.log_evidence[0] == pytest.approx(expected.log_evidence, rel=1e-10)
    for t in range(length):
        for v in ("a", "b"):
            assert np.allclose(answer[v][0, t], np.asarray(expected[f"{v}[{t}]"]), atol=1e-10)
    assert (answer.mean["v"][0, 1], answer.sd["v"][0, 1]) == (-0.4, 0.0)
    everywhere = tree.smooth({"y": [[NAN] * 3]}, do={"v": 1.0}, targets=["v", "a"])
    assert np.allclose(everywhere["a"], tree.smooth({"y": [[NAN] * 3]}, targets=["a"])["a"], atol=1e-12)
    drawn_ones = tree.sample(2, {"y": [[NAN] * 3]}, do={"v": 1.0}, seed=1)
    assert (np.asarray(drawn_ones["v"]) == 1.0).all()


def test_a_mixed_template_has_what_a_template_has() -> None:
    net = template(np.random.default_rng(1), lagged=True)
    assert (net.states("b"), net.states("x"), net.index("x"), net.is_number(2)) == (("u", "v"), (), 2, True)
    assert net.cpt("b").variables == ("a[t]", "b[t-1]", "b[t]")
    assert net.cpt("b", 0).variables == ("a[t]", "b[t]")
    first: Any = net.start("b")
    assert np.array_equal(first[0], net.cpt("b", 0))
    assert (net.start("v"), net.start("y")) == ((net.gaussian("v", 0),), ())
    assert net.children("b") == (("b", 1), ("y", 0), ("w", 0), ("v", 0))
    assert net.children("v") == (("v", 1),)
    assert net.discrete.children("a") == (("a", 1), ("b", 0), ("a,b", 0))
    assert "x" in net
    assert "a,b" not in net
    with pytest.raises(jtgpu.NetworkError, match=r"'x' is a number; its parameters are gaussian\('x'\)"):
        net.cpt("x")
    for ask in (net.cpt, net.states, net.children, net.parents, net.start):
        with pytest.raises(jtgpu.UnknownVariable, match="'xx'; did you mean 'x'"):
            ask("xx")


@pytest.mark.parametrize("column", [np.array([1 + 2j]), [np.complex128(1 + 2j)]])
def test_a_complex_number_is_no_number(column: Any) -> None:
    net = jtgpu.MixedNetwork({"z": float}, {}, {"z": jtgpu.Gaussian(0.0)})
    with pytest.raises(jtgpu.EvidenceError, match=r"row 0, column 'z': expected a number, got .*1\+2j"):
        net.compile("cpu").posteriors_batch({"z": column})
    table = {"x": ["a", "b"] * 3, "z": [1.0, 2.0, 3.0, 2.0, 1.0, 0.0]}
    slices = jtgpu.learn.fit(
        {"x": [("x", 1)], "z": ["x"]}, table, keys=jtgpu.learn.Keys(), continuous={"z": "gaussian"}
    ).network
    with pytest.raises(jtgpu.DataError, match=r"row 0, column 'z': expected a number, got .*1\+2j"):
        slices.compile("cpu").filter({"x": ["a"], "z": column})
    assert list(slices.compile("cpu").filter({"x": ["a"]}, joints=np.array([]))) == ["x"]
