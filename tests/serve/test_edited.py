"""Networks of every kind to the page's JSON and back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import jtgpu
from jtgpu.formats.registry import file_suffixes
from jtgpu.serve.edited import EditedNetwork, edited_network, network_of_page
from jtgpu.serve.networks import file, summary, written_formats
from jtgpu.serve.opening import network_of_file
from jtgpu.serve.page_module import FOLDER
from jtgpu.serve.requests import Refusal
from jtgpu.serve.trees import network_kind
from tests.decisions.test_policies import oil
from tests.dynamic.test_posteriors import umbrella
from tests.model.test_editing_kinds import mixed_dynamic


def body() -> jtgpu.MixedNetwork:
    """Numbers with parents of both kinds."""
    gaussian = jtgpu.Gaussian
    return jtgpu.MixedNetwork(
        {"sex": ["f", "m"], "age": float, "height": float},
        {"height": ["age", "sex"]},
        {"sex": [0.5, 0.5], "age": gaussian(40, sd=12), "height": gaussian([165, 178], {"age": -0.05}, sd=7)},
        name="body", attributes={"node": {"height": {"position": (30, 40)}}},
    )  # fmt: skip


def noisy() -> jtgpu.BayesianNetwork:
    """A noisy-OR as a file gives it, with its strengths."""
    made = jtgpu.NoisyOr([0.8, 0.5], leak=0.1, present=0)
    states = {"flu": ["yes", "no"], "cold": ["yes", "no"], "fever": ["yes", "no"]}
    cpts: dict[str, Any] = {"flu": [0.1, 0.9], "cold": [0.2, 0.8], "fever": made}
    return jtgpu.BayesianNetwork(
        states, {"fever": ["flu", "cold"]}, cpts, attributes={"potential": {"fever": made.attributes}}
    )


def markov() -> jtgpu.MarkovNetwork:
    """A pair, one of them with a factor of its own, and a constant."""
    pair: Any = (("b", "a"), [[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]])
    states = {"a": ["0", "1"], "b": ["x", "y", "z"]}
    return jtgpu.MarkovNetwork(states, [pair, (("a",), [5.0, 1.0]), ((), 2.0)], name="p")


def over_json(net: Any) -> Any:
    """The network after its way to the page and back."""
    text = msgspec.json.encode(edited_network(net))
    return network_of_page(msgspec.json.decode(text, type=EditedNetwork))


_NAMES = re.findall(r"NETWORK_FILE = /(.*)/i;", (FOLDER / "app.js").read_text("utf-8"))
PAGE_OPENS = re.compile(_NAMES[0], re.IGNORECASE)
NETS: list[Any] = [jtgpu.load("asia"), oil(), umbrella(), body(), noisy(), markov(), mixed_dynamic()]


@pytest.mark.parametrize("net", NETS, ids=network_kind)
def test_every_kind_comes_back(net: Any) -> None:
    again = over_json(net)
    assert type(again) is type(net)
    assert again == net
    for kind in ("net", "node", "potential"):
        assert dict(attributes_of(again).get(kind, {})) == dict(attributes_of(net).get(kind, {}))


@pytest.mark.parametrize("net", NETS, ids=network_kind)
def test_every_format_of_the_export_holds_the_network(net: Any, tmp_path: Path) -> None:
    """The menu of the page has no format that cannot."""
    for suffix in written_formats(net):
        path = tmp_path / f"net.{suffix}"
        path.write_text(file(net, suffix), encoding="utf-8")
        again: Any = jtgpu.read(path)
        assert type(again) is type(net) or (suffix == "fg" and isinstance(again, jtgpu.MarkovNetwork)), suffix
        assert len(again) == len(net)
        assert PAGE_OPENS.match(path.name), suffix
        assert type(network_of_file(path.read_bytes(), suffix, str(tmp_path))) is type(again)


def test_arcs_are_counted_of_all_nodes() -> None:
    """To utilities and from earlier slices, too."""
    arcs: dict[Any, int] = {oil: 7, umbrella: 2, mixed_dynamic: 3, markov: 1}
    assert {make: summary("x", make().compile("reference"))["arcs"] for make in arcs} == arcs


def test_the_page_opens_every_format_that_is_read() -> None:
    """It looks at the name of a file; ``.mixed.json`` was missing."""
    assert [s for s in file_suffixes() if not PAGE_OPENS.match(f"a{s}")] == []


def attributes_of(net: Any) -> Any:
    """What the file says beyond the model."""
    return getattr(net, "attributes", {})


def test_two_slices_back() -> None:
    net = jtgpu.DynamicNetwork(
        {"x": ["a", "b"], "k": ["u", "v"]}, {"x": [("x", 2), "k"]},
        {"x": [[[0.1, 0.9], [0.2, 0.8]], [[0.3, 0.7], [0.4, 0.6]]], "k": [0.5, 0.5]},
        start={"x": [[[0.5, 0.5], [0.6, 0.4]]] * 2}, static=["k"],
    )  # fmt: skip
    assert over_json(net) == net


def test_numbers_over_time() -> None:
    """Means, coefficients and standard deviations of the first slices, too."""
    net = mixed_dynamic().add("second", float, ["load", ("second", 2), ("load", 1)], jtgpu.Gaussian(
        1, {"load": 0.5, "second[t-2]": 0.25, "load[t-1]": 0.125}, 2
    ), start=[jtgpu.Gaussian(3, {"load": 1}), jtgpu.Gaussian(4, {"load": 2, "load[t-1]": 1})])  # fmt: skip
    assert over_json(net) == net
    edited = edited_network(net)
    edited.variables[-1].start_sd.pop()
    with pytest.raises(Refusal, match="'second' need as many means"):
        network_of_page(edited)


def test_strengths_make_the_cpt() -> None:
    edited = edited_network(noisy())
    fever = edited.variables[2]
    assert [row[0] for row in fever.noisy] == [0.8, 0.0, 0.5, 0.0, 0.1]
    fever.noisy[0], fever.cpt = [0.4, 0.6], []
    net: Any = network_of_page(edited)
    assert net.cpt("fever")[0, 0, 1] == pytest.approx(0.6 * 0.5 * 0.9)
    assert net.attributes["potential"]["fever"]["noisy_max"][:2] == (0.4, 0.6)
    fever.noisy.pop()
    with pytest.raises(Refusal, match=r"4 rows, expected 5: one for each state of each parent, and the leak"):
        network_of_page(edited)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"name": "u", "kind": "utility", "parents": ["drill"], "cpt": [1.0]}, "the table of 'u' has 1 entries"),
        ({"name": "u", "kind": "utility", "states": ["a"]}, "utility 'u' cannot have states"),
        ({"name": "d", "kind": "decision"}, "'d' has no states"),
        ({"name": "x", "kind": "number", "cpt": [0.0], "sd": [1.0]}, "with decisions cannot have numbers"),
        ({"name": "oil", "states": ["a"], "cpt": [1.0]}, "two variables 'oil'"),
    ],
)
def test_mistakes_are_named(node: dict[str, Any], message: str) -> None:
    edited: Any = msgspec.to_builtins(edited_network(oil()))
    edited["variables"].append(node)
    with pytest.raises(Refusal, match=message):
        network_of_page(msgspec.convert(edited, EditedNetwork))


def test_mistakes_of_factors_are_named() -> None:
    edited: Any = msgspec.to_builtins(edited_network(markov()))
    for change, message in (
        ({"factors": [{"scope": ["a", "b"], "table": [1.0]}]}, r"factor 0 \(a, b\) has 1 entries, expected 6"),
        ({"variables": [*edited["variables"], {"name": "c", "states": ["x"], "cpt": [1.0]}]}, "factors, not 'c'"),
    ):
        with pytest.raises(Refusal, match=message):
            network_of_page(msgspec.convert({**edited, **change}, EditedNetwork))
    with pytest.raises(jtgpu.errors.JtgpuError, match="'z'"):
        network_of_page(msgspec.convert({**edited, "factors": [{"scope": ["z"], "table": [1.0]}]}, EditedNetwork))

def test_states_of_equal_names_are_numbered() -> None:
    """As in some files; the editor takes none of its own."""
    net = jtgpu.BayesianNetwork({"a": ["x", "", "", "x (0)"]}, {}, {"a": [0.1, 0.2, 0.3, 0.4]})
    edited = edited_network(net)
    assert (edited.renamed, edited.variables[0].states) == (["a"], ["x", "state (1)", "state (2)", "x (0)"])
    edited.variables[0].states[1] = "x"
    with pytest.raises(Refusal, match="variable 'a' has 2 states named 'x'; give each its own name"):
        network_of_page(edited)
    with pytest.raises(jtgpu.errors.NetworkError, match="'a' would have 2 states named 'x'"):
        net.replace(states={"a": {"x (0)": "x"}})
    assert net.replace(states={"a": {"x": "y"}}).states("a") == ("y", "", "", "x (0)")  # those of a file stay
