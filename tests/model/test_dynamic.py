"""Templates of dynamic networks: reading, errors, unrolling."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import DynamicNetwork, NetworkError

NO_YES = ["no", "yes"]


def umbrella(**changes: Any) -> DynamicNetwork:
    given: dict[str, Any] = {
        "states": {"rain": NO_YES, "umbrella": NO_YES},
        "parents": {"rain": [("rain", 1)], "umbrella": ["rain"]},
        "cpts": {"rain": [[0.7, 0.3], [0.3, 0.7]], "umbrella": [[0.8, 0.2], [0.1, 0.9]]},
        "start": {"rain": [0.5, 0.5]},
    }
    return DynamicNetwork(**{**given, **changes})


def test_the_umbrella_world() -> None:
    """Russell and Norvig, Artificial Intelligence, section 15.2: .818, .883."""
    dyn = umbrella()
    both = {"umbrella[0]": "yes", "umbrella[1]": "yes"}
    tree = dyn.unroll(2).compile("reference")
    assert tree.posterior("rain[1]", both)["yes"] == pytest.approx(0.883, abs=5e-4)
    assert tree.posterior("rain[0]", both)["yes"] == pytest.approx(0.883, abs=5e-4)
    assert dyn.unroll(1).compile("reference").posterior("rain[0]", {"umbrella[0]": "yes"})["yes"] == pytest.approx(
        9 / 11
    )


def test_lags_and_static_variables() -> None:
    rng = np.random.default_rng(1)

    def table(*shape: int) -> Any:
        t = rng.random(shape)
        return t / t.sum(axis=-1, keepdims=True)

    first = [table(3, 2), table(2, 3, 2)]
    dyn = DynamicNetwork(
        {"x": NO_YES, "kind": ["a", "b", "c"], "y": NO_YES},
        {"x": [("x", 2), ("x", 1), "kind"], "y": ["x", ("y", 1)]},
        {"x": table(2, 2, 3, 2), "kind": table(3), "y": table(2, 2, 2)},
        start={"x": first, "y": table(2, 2)},
        static=["kind"],
    )
    assert dyn.order == 2
    assert dyn.static == ("kind",)
    assert dyn.interface == (("x", 1), ("x", 2), ("kind", 0), ("y", 1))
    net = dyn.unroll(4)
    assert net.variables[:4] == ("kind", "x[0]", "y[0]", "x[1]")
    assert net.parents("x[0]") == ("kind",)
    assert net.parents("x[1]") == ("x[0]", "kind")
    assert net.parents("x[3]") == ("x[1]", "x[2]", "kind")
    assert net.parents("y[3]") == ("x[3]", "y[2]")
    np.testing.assert_array_equal(net.cpt("x[1]"), first[1])
    np.testing.assert_array_equal(net.cpt("x[2]"), dyn.cpt("x"))
    assert dyn.cpt("x").variables == ("x[t-2]", "x[t-1]", "kind", "x[t]")
    assert dyn.cpt("x", 1).variables == ("x[t-1]", "kind", "x[t]")
    assert dyn.cpt("x", 7).ndim == 4
    assert dyn.replace() == dyn
    assert hash(dyn) == hash(pickle.loads(pickle.dumps(dyn)))
    assert dyn.replace(start={"y": [[1, 0], [0, 1]]}) != dyn
    assert dyn.replace(cpt={"kind": [1, 0, 0]}).cpt("kind").tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": {}}, "variable 'rain' has parents in earlier slices: start must give its CPT in the first slice"),
        ({"parents": {"rain": [("rain", 0)]}}, "is its own parent; .'rain', 1. is 'rain' one slice earlier"),
        ({"parents": {"rain": [("rain", -1)]}}, "the lag -1; a lag is 0"),
        ({"parents": {"rain": [("rain", 1.0)]}}, "the lag 1.0; a lag is 0"),
        ({"parents": {"rain": [("rain", 1), ("rain", 1)]}}, r"the parent 'rain\[t-1\]' twice"),
        ({"parents": {"rain": [("rainy", 1)]}}, "'rainy', which is not declared.*'rain'"),
        ({"parents": {"rain": "umbrella"}}, "its parents must be a sequence"),
        ({"parents": {"rain": ["umbrella"], "umbrella": ["rain"]}}, "inside a slice form a cycle: 'rain' -> "),
        ({"parents": {"umbrella": ["rain"]}}, "no variable has a parent in an earlier slice"),
        ({"static": "rain"}, "static must be a sequence of names"),
        ({"static": ["wind"]}, "static has 'wind'"),
        ({"static": ["rain"]}, "'rain' has the parent 'rain' with the lag 1, but 'rain' is static"),
        ({"static": ["umbrella"]}, "'umbrella' is static, and its parent 'rain' is not"),
        ({"start": {"rain": [0.5, 0.6]}}, r"start, slice 0: variable 'rain\[t\]': its CPT sums to 1.1"),
        ({"start": {"rain": [0.5, 0.5], "umbrella": [0.5, 0.5]}}, "start has 'umbrella', which has no parent in an"),
        ({"cpts": {"rain": [[0.7, 0.3], [0.3, 0.7]]}}, "variable 'umbrella' has no CPT"),
        (
            {"cpts": {"rain": [[0.7, 0.3], [0.3, 0.8]], "umbrella": [[0.8, 0.2], [0.1, 0.9]]}},
            r"the row of its CPT for rain\[t-1\]=yes sums to 1.1",
        ),
        (
            {"parents": {"rain": [("rain", 2)], "umbrella": ["rain"]}},
            "'rain': start must be a sequence of 2 tables, one for each of the slices",
        ),
        (
            {"parents": {"rain": [("rain", 2)], "umbrella": ["rain"]}, "start": {"rain": [0.5, 0.5]}},
            "'rain': start must be a sequence of 2 tables, one for each of the slices",
        ),
    ],
)  # fmt: skip
def test_errors_name_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    if changes.get("parents") == {"rain": [("rain", 2)], "umbrella": ["rain"]}:
        changes = {"start": {"rain": [[0.5, 0.5]]}, **changes}
    with pytest.raises(NetworkError, match=message):
        umbrella(**changes)


def test_questions_of_a_template() -> None:
    dyn = umbrella(name="weather")
    assert str(dyn).splitlines()[0] == "Dynamic network 'weather': 2 variables in a slice, order 1"
    assert repr(dyn) == "DynamicNetwork('weather', 2 variables, order 1)"
    picture = dyn._repr_html_()
    assert all(name in picture for name in ("Dynamic network", "rain[0]", "rain[1]", "umbrella[1]"))
    with pytest.raises(NetworkError, match="no plan of its own"):
        dyn.plan()
    with pytest.raises(jtgpu.ArgumentError, match="n_slices"):
        dyn.unroll(0)
    with pytest.raises(jtgpu.TableTooLarge, match=r"100,000,000 slices .* compile\(\)"):
        dyn.unroll(10**8)


def test_an_interface_that_is_too_large_is_named() -> None:
    with pytest.raises(jtgpu.TableTooLarge, match=r"slices \(rain\[t-1\]\) has 2 configurations; a slice: .*max_table"):
        umbrella().compile("reference", max_table=2)
    late = umbrella(parents={"rain": [("rain", 30)], "umbrella": ["rain"]}, start={"rain": [[0.5, 0.5]] * 30})
    with pytest.raises(jtgpu.TableTooLarge, match=r"rain\[t-8\] and 22 more\) has 1,073,741,824 configurations"):
        late.compile("reference")
