"""Conversion: every pair of formats, all networks of nets/, bit for bit; what is lost is said, and nothing else is.

The last part is the table of formats and features that the documentation shows, each cell of it tested.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.cli import app
from jtgpu.errors import FormatError, JtgpuError, ParseError
from jtgpu.formats import FORMATS, Format, read, write
from jtgpu.formats.conversion import as_bayesian, carry
from jtgpu.formats.network_files import find_comments
from jtgpu.model.decisions import DecisionNetwork
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.dynamic import DynamicNetwork
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.mixed import MixedNetwork
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT
from tests.support.bundled import slow_when_large
from tests.support.examples import slow
from tests.support.random_nets import bayesian_networks, markov_networks

NETS = ROOT / "nets"
WRITTEN = [f for f in FORMATS if f.writer]
BY_NAME = {f.name: f for f in WRITTEN}
NAMES = list(BY_NAME)
ALL_NETS = sorted(p.name for p in NETS.iterdir() if ".net" in p.suffixes)
SMALL = ["asia.net", "sachs.net", "survey.net", *slow("alarm.net", "insurance.net")]
ASIA = str(NETS / "asia.net")


def again(model: DiscreteModel, target: Format) -> DiscreteModel:
    """What comes back of a model through a format; a Bayesian network wherever it is one."""
    found = target.parse(carry(model, target).text, target.name)
    if isinstance(found, MarkovNetwork) and isinstance(model, BayesianNetwork):
        made = as_bayesian(found)
        assert made is not None
        return made
    return found


def assert_same_numbers(a: DiscreteModel, b: DiscreteModel) -> None:
    """Equal tables, bit for bit, over the same variables, which go by their place."""
    assert np.array_equal(a.cardinality, b.cardinality)
    assert len(a.factors) == len(b.factors)
    for x, y in zip(a.factors, b.factors, strict=True):
        assert x.scope == y.scope
        assert np.array_equal(x.table, y.table)


# Every pair of formats ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_every_pair_of_formats(name: str) -> None:
    """From each format into each other one and back into the first."""
    net = read(NETS / name)
    first = {f: again(net, BY_NAME[f]) for f in NAMES}
    for source, target in itertools.permutations(NAMES, 2):
        there = again(first[source], BY_NAME[target])
        assert_same_numbers(there, net)
        assert_same_numbers(again(there, BY_NAME[source]), net)


@pytest.mark.parametrize("name", slow_when_large(ALL_NETS))
def test_every_network_once_through_all_formats(name: str) -> None:
    """One text after another, each read from the one before; another order of formats for each network."""
    net: DiscreteModel = read(NETS / name)
    order = np.random.default_rng(ALL_NETS.index(name)).permutation(len(NAMES)).tolist()
    now = net
    for i in order:
        target = WRITTEN[i]
        if isinstance(now, MarkovNetwork):
            made = as_bayesian(now)
            assert made is not None
            now = made
        assert target.dumps is not None
        now = target.parse(target.dumps(now), target.name)
    assert_same_numbers(now, net)


@given(bayesian_networks())
def test_any_network_through_any_format(net: BayesianNetwork) -> None:
    for target in WRITTEN:
        assert_same_numbers(again(net, target), net)


@given(markov_networks())
def test_markov_networks_where_they_can_go(net: MarkovNetwork) -> None:
    for target in WRITTEN:
        if target.name == "UAI":
            assert_same_numbers(again(net, target), net)
        elif target.name != "libDAI factor graph" and as_bayesian(net) is None:
            with pytest.raises(FormatError, match="its factors are not conditional tables"):
                carry(net, target)


# What is said ---------------------------------------------------------------------------------------------------


def test_nothing_is_said_where_nothing_is_lost() -> None:
    net = read(NETS / "alarm.net")
    for name in ("Hugin net", "BIF", "XMLBIF", "XDSL", "DSL", "DSC"):
        made = carry(net, BY_NAME[name])
        assert (made.losses, made.notes) == ((), ())


RICH = BayesianNetwork(
    {"x-ray": ["<9", "", ""], "b": ["Sim ", "no"], "node": ["only"]},
    {"b": ["x-ray"]},
    {"x-ray": [0.25, 0.25, 0.5], "b": [[0.1, 0.9], [0.2, 0.8], [0.3000001, 0.7]], "node": [1.0]},
    name="a network; with signs",
    attributes={
        "net": {"node_size": (80, 60)},
        "node": {"x-ray": {"label": "X-ray", "position": (12, -7)}, "b": {"position": (3, 4)}},
        "potential": {"b": {"experience": (1.5, 2)}},
    },
)


@pytest.mark.parametrize("target", NAMES)
def test_what_is_said_is_what_is_lost(target: str) -> None:
    """Every loss is named, and what is not named has not been lost."""
    made = carry(RICH, BY_NAME[target])
    found = BY_NAME[target].parse(made.text, "f")
    said = "\n".join(made.losses)
    kept = found.attributes if isinstance(found, BayesianNetwork) else {}
    assert ("network's name" in said) == (found.name != RICH.name)
    assert ("names of 1 variable" in said or "names of 3 variables" in said) == (found.variables != RICH.variables)
    assert ("state names" in said) == any(found.states(i) != RICH.states(i) for i in range(3))
    assert "digits" not in said
    assert ("'node_size'" in said) == (kept.get("net", {}).get("node_size") != (80, 60))
    positions = [kept.get("node", {}).get(found.variables[i], {}).get("position") for i in (0, 1)]
    texts = [kept.get("node", {}).get(found.variables[i], {}).get("property", ()) for i in (0, 1)]
    assert ("'position'" in said) == (
        positions != [(12, -7), (3, 4)] and "position = (12, -7)" not in "".join(texts[0])
    )
    assert ("'experience'" in said) == (target != "Hugin net")


def test_positions_and_labels_travel(tmp_path: Path) -> None:
    """Through every format that can hold them in any way, and back."""
    carrying = ["Hugin net", "BIF", "XMLBIF", "XDSL", "DSL", "DSC"]
    for order in (carrying, carrying[::-1], carrying[1:] + carrying[:1], carrying[::2] + carrying[1::2]):
        now: DiscreteModel = RICH
        for name in [*order, "Hugin net"]:
            now = again(now, BY_NAME[name])
        assert isinstance(now, BayesianNetwork)
        kept = now.attributes["node"]
        assert kept["x_ray"]["label"] in ("X-ray", "x-ray")
        assert kept["x_ray"]["position"] == (12, -7)
        assert kept["b"]["position"] == (3, 4)


def test_properties_travel() -> None:
    text = """network n { property author x; } variable a { type discrete { x, y }; property position = (7, 8);
    property seen in 1999; } probability (a) { table 0.25, 0.75; property p; }"""
    net = BY_NAME["BIF"].parse(text, "f")
    for name in ("XMLBIF", "XDSL", "DSL", "Hugin net"):
        made = carry(net, BY_NAME[name])
        assert not [s for s in made.losses if name != "Hugin net"]
        there = again(net, BY_NAME[name])
        back = again(there, BY_NAME["BIF"])
        assert isinstance(back, BayesianNetwork)
        assert sorted(back.attributes["node"]["a"]["property"]) == ["position = (7, 8)", "seen in 1999"]


def test_names_that_no_format_takes() -> None:
    """Control characters: XML has no place for them, in names of states neither."""
    kept = {"node": {"a\0": {"label": "\x03"}}}
    net = BayesianNetwork({"a\0": ["\x01", "\x02"]}, {}, {"a\0": [0.25, 0.75]}, attributes=kept)
    for target in WRITTEN:
        made = carry(net, target)
        assert_same_numbers(target.parse(made.text, "f"), net)
        if target.name in ("XMLBIF", "XDSL"):
            assert any("names of 1 variable" in s for s in made.losses)
            assert any("state names of 1 variable" in s for s in made.losses)


def test_what_is_a_bayesian_network() -> None:
    net = read(ASIA)
    factors = [(f.scope, f.table) for f in net.factors]
    found = as_bayesian(MarkovNetwork({v: net.states(v) for v in net.variables}, factors))
    assert found == net
    two = {"a": ["x", "y"], "b": ["x", "y"]}
    half = [[0.5, 0.5], [0.25, 0.75]]
    for wrong in (
        [(["a"], [1, 0])],  # b is nobody's child
        [(["a"], [1, 0]), (["a"], [1, 0])],
        [(["a"], [1, 0]), (["a", "b"], [[1, 2], [3, 4]])],
        [(["b", "a"], half), (["a", "b"], half)],  # a cycle
        [(["a"], [1, 0]), ([], 1.0)],
    ):
        assert as_bayesian(MarkovNetwork(two, wrong)) is None  # type: ignore[arg-type]


# Comments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "n", "head", "legal"),
    [
        ("Hugin net", '% A net\n% Licence: CC BY\nnet { x = "% no"; } % by rows\n', 3, ("A net", "Licence: CC BY"), 1),
        ("BIF", '// one\n/* two\n three */ network "a // no" { } // (c) 1999 X', 3, ("one", "two", "three"), 1),
        ("XMLBIF", "<?xml version='1.0'?>\n<!-- Author: X -->\n<BIF><!-- y --></BIF>", 2, ("Author: X",), 1),
        ("XDSL", "<!-- This network was created by Y --><smile/>", 1, ("This network was created by Y",), 1),
        ("DSL", '/# z #/ net x { a = "/* b */"; }', 1, ("z",), 0),
        ("DSC", "belief network // w", 1, (), 0),
        ("UAI", "c made with software Z\nBAYES\n1\n2\n1\n1 0  # A\n2 1 1", 2, ("made with software Z",), 1),
        ("Ergo", "/* v */ 1", 1, ("v",), 0),
        ("libDAI factor graph", "# u\n0", 1, ("u",), 0),
        ("another", "# u", 0, (), 0),
    ],
)
def test_comments(name: str, text: str, n: int, head: tuple[str, ...], legal: int) -> None:
    found = find_comments(text, name)
    assert (found.n, found.head, len(found.legal)) == (n, head, legal)


@given(st.text(st.sampled_from("%/*#<!->c\n\"\\ a"), max_size=60), st.sampled_from(NAMES))
def test_comments_of_anything(text: str, name: str) -> None:
    found = find_comments(text, name)
    assert found.n >= 0
    assert all(line in text for line in found.head)


# The command ------------------------------------------------------------------------------------------------------


def run(*words: str) -> Any:
    result = CliRunner().invoke(app, ["convert", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    return result


def test_the_command(tmp_path: Path) -> None:
    target = tmp_path / "asia.xdsl.gz"
    result = run(ASIA, str(target))
    assert result.exit_code == 0
    assert re.fullmatch(r".*asia\.xdsl\.gz: XDSL, 8 variables, [\d,]+ bytes\n", result.stdout)
    assert "warning: XDSL cannot represent 19 comments of" in result.stderr
    assert gzip.decompress(target.read_bytes()).startswith(b"<?xml")
    assert read(target) == read(ASIA)


def test_existing_files_are_overwritten_only_with_force(tmp_path: Path) -> None:
    target = tmp_path / "a.bif"
    target.write_text("mine")
    result = run(ASIA, str(target))
    assert result.exit_code == 6
    assert "exists; pass --force" in re.sub(r"[\s│]+", " ", result.stderr)
    assert target.read_text() == "mine"
    assert run(ASIA, str(target), "--force").exit_code == 0
    assert read(target) == read(ASIA)


def test_strictly(tmp_path: Path) -> None:
    bare = tmp_path / "bare.net"
    write(read(ASIA), bare)
    bare.write_text(re.sub("%.*", "", bare.read_text()))
    assert run(str(bare), str(tmp_path / "a.dsl"), "--strict").exit_code == 0
    result = run(str(bare), str(tmp_path / "a.uai"), "--strict")
    assert result.exit_code == 1
    assert "not written: UAI cannot represent everything in" in result.stderr
    assert not (tmp_path / "a.uai").exists()


def test_json(tmp_path: Path) -> None:
    found = json.loads(run(ASIA, str(tmp_path / "a.uai"), "--json").stdout)
    assert found["format"] == {"from": "Hugin net", "to": "UAI"}
    assert found["bytes"] == (tmp_path / "a.uai").stat().st_size
    assert len(found["not_carried"]) == 4


def test_row_repairs_and_factors_are_said(tmp_path: Path) -> None:
    (tmp_path / "a.net").write_text("node a { states = (x y); } potential (a) { data = (0 0); }")
    assert run(str(tmp_path / "a.net"), str(tmp_path / "b.net")).exit_code == 5
    result = run(str(tmp_path / "a.net"), str(tmp_path / "b.fg"), "--zero-rows", "uniform")
    assert result.exit_code == 0
    assert "1 row of zeros was made uniform" in result.stderr
    result = run(str(tmp_path / "b.fg"), str(tmp_path / "c.bif"))
    assert result.exit_code == 0
    assert "written as a Bayesian network" in result.stderr


def test_wrong_usage(tmp_path: Path) -> None:
    for words, code in (
        ((ASIA, str(tmp_path / "a.xyz")), 2),
        ((ASIA, str(tmp_path / "a.oobn")), 2),
        ((ASIA, str(tmp_path / "no" / "a.bif")), 2),
        ((str(tmp_path / "no.net"), str(tmp_path / "a.bif")), 2),
        ((ASIA, str(tmp_path / "a.bif"), "--zero-rows", "no"), 2),
        ((ASIA,), 2),
    ):
        result = run(*words)
        assert result.exit_code == code, result.output
        assert not result.stdout
    assert list(tmp_path.iterdir()) == []


# Files of others, where they are here -----------------------------------------------------------------------------


def shared_files(shared: Path) -> list[Path]:
    suffixes = tuple(s for f in FORMATS for s in f.suffixes)
    return sorted(p for p in shared.rglob("*") if p.name.lower().endswith(suffixes))


@pytest.mark.slow
def test_every_shared_file_is_read_or_refused_with_a_place(shared_nets: Path) -> None:
    files = shared_files(shared_nets)
    assert len(files) > 100
    refused = {}
    for path in files:
        try:
            read(path, zero_rows="uniform")
        except ParseError as error:
            refused[path] = error
    assert all(re.match(rf"{re.escape(str(path))}:\d+:\d+: \w", str(error)) for path, error in refused.items())
    # all that is refused is what the formats' notes say: continuous and function nodes, classes
    kinds = r"continuous|function|instance|temporal|model|normal distribution|not declared|second class"
    assert all(re.search(kinds, error.message) for error in refused.values()), refused
    assert len(refused) < len(files) / 4


def test_networks_in_several_files_are_the_same(shared_nets: Path) -> None:
    """Copies that other programs made of the same networks: equal numbers by names of variables and states."""
    variety = shared_nets / "variety"
    for first, second, tolerance in (
        (variety / "bnlearn_asia.net", NETS / "asia.net", 0.0),
        (variety / "bnlearn_sachs.net", NETS / "sachs.net", 1e-6),
        (variety / "bnlearn_survey.net", NETS / "survey.net", 1e-9),
        (variety / "wmc_asia.net", NETS / "asia.net", 1e-9),
    ):
        a, b = read(first), read(second)
        assert isinstance(a, BayesianNetwork)
        assert isinstance(b, BayesianNetwork)
        assert set(a.variables) == set(b.variables)
        for v in a.variables:
            table = np.asarray(a.cpt(v)).transpose([a.parents(v).index(p) for p in b.parents(v)] + [a.cpt(v).ndim - 1])
            for axis, u in enumerate((*b.parents(v), v)):
                table = np.take(table, [a.state_index(u, s) for s in b.states(u)], axis=axis)
            assert np.abs(table - b.cpt(v)).max() <= tolerance, (first.name, v)


@pytest.mark.slow
def test_shared_networks_through_every_format(shared_nets: Path) -> None:
    """Real names of real files: blanks, signs, other alphabets, empty and equal states."""
    for path in sorted((shared_nets / "variety").iterdir()):
        if path.stat().st_size > 60_000:
            continue
        try:
            net: Any = read(path, zero_rows="uniform")
        except JtgpuError:
            continue
        if not isinstance(net, (DecisionNetwork, DynamicNetwork, MixedNetwork)):  # these have formats of their own
            for target in WRITTEN:
                assert_same_numbers(again(net, target), net)


# The table of the documentation -------------------------------------------------------------------------------------

YES, NO = "yes", "no"
FEATURES: dict[str, dict[str, str]] = {
    # format: what of a network comes back through it
    "Hugin net": {"names": "words", "states": YES, "positions": YES, "labels": YES, "attributes": YES},
    "BIF": {"names": YES, "states": YES, "positions": "as text", "labels": "as text", "attributes": "as text"},
    "XMLBIF": {"names": YES, "states": YES, "positions": "as text", "labels": "as text", "attributes": "as text"},
    "XDSL": {"names": YES, "states": YES, "positions": YES, "labels": YES, "attributes": "as text"},
    "DSL": {"names": YES, "states": YES, "positions": YES, "labels": YES, "attributes": "as text"},
    "DSC": {"names": "words", "states": YES, "positions": YES, "labels": YES, "attributes": NO},
    "UAI": {"names": NO, "states": NO, "positions": NO, "labels": NO, "attributes": NO},
    "Ergo": {"names": YES, "states": "words", "positions": NO, "labels": NO, "attributes": NO},
    "libDAI factor graph": {"names": NO, "states": NO, "positions": NO, "labels": NO, "attributes": NO},
}
MARKOV = {"UAI", "libDAI factor graph"}
WORDS = BayesianNetwork(
    {"alpha": ["s0", "s1"], "beta": ["t0", "t1", "t2"]},
    {"beta": ["alpha"]},
    {"alpha": [0.25, 0.75], "beta": [[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]},
)


def named(v: str, states: list[str], **attributes: Any) -> BayesianNetwork:
    return BayesianNetwork({v: states}, {}, {v: [0.5] * 2}, attributes={"node": {v: attributes}})


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_names(name: str) -> None:
    target, cell = BY_NAME[name], FEATURES[name]
    words = again(WORDS, target)
    odd = again(named("x-ray 1", ["<9 µ", ""]), target)
    assert (words.variables == WORDS.variables) == (cell["names"] != NO)
    assert (odd.variables == ("x-ray 1",)) == (cell["names"] == YES)
    assert (words.states(0) == ("s0", "s1")) == (cell["states"] != NO)
    assert (odd.states(0) == ("<9 µ", "")) == (cell["states"] == YES)


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_attributes(name: str) -> None:
    target, cell = BY_NAME[name], FEATURES[name]
    net = named("a", ["x", "y"], position=(3, -4), label="the A", property=("k = v",))
    found = again(net, target)
    assert isinstance(found, BayesianNetwork)
    kept = found.attributes.get("node", {}).get("a", {})
    texts = kept.get("property", ())
    texts = texts.split("\n") if isinstance(texts, str) else list(texts)
    there = {YES: kept.get("position") == (3, -4), "as text": "position = (3, -4)" in texts}
    assert [k for k, x in there.items() if x] == [c for c in [cell["positions"]] if c != NO]
    there = {YES: kept.get("label") == "the A", "as text": "label = the A" in texts}
    assert [k for k, x in there.items() if x] == [c for c in [cell["labels"]] if c != NO]
    assert ("k = v" in texts) == (cell["attributes"] != NO)
    more = {"HR_State_0": "text", "n": (1, 2.5)}
    anything = BayesianNetwork({"a": ["x"]}, {}, {"a": [1.0]}, attributes={"node": {"a": more}})
    kept = getattr(again(anything, target), "attributes", {}).get("node", {}).get("a", {})
    assert (kept == more) == (cell["attributes"] == YES)


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_models(name: str) -> None:
    """Read and written, precise to the bit, rows within the tolerance included; Markov networks; no comments."""
    target = BY_NAME[name]
    assert target.dumps is not None
    cpts: dict[str, Any] = {"a": [0.3000001, 0.7], "b": [[1 / 3, 2 / 3], [5e-324, 1]]}
    odd = BayesianNetwork({"a": ["x", "y"], "b": ["x", "y"]}, {"b": ["a"]}, cpts)
    assert_same_numbers(again(odd, target), odd)
    markov = MarkovNetwork({"a": ["x", "y"]}, [(["a"], [2.5, 1e300])])
    if name in MARKOV:
        assert_same_numbers(again(markov, target), markov)
    else:
        with pytest.raises(FormatError):
            carry(markov, target)
    with pytest.raises(ParseError):
        target.parse("", "f")


CANONICAL = {"XDSL": "noisy", "DSL": "noisy"}


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_canonical_nodes(name: str) -> None:
    """Where noisy and deterministic nodes are read there is a file of them here."""
    files = {"XDSL": "xdsl_canonical.xdsl", "DSL": "dsl_old.dsl"}
    assert (name in files) == (name in CANONICAL)
    if name in files:
        text = (ROOT / "tests" / "formats" / "data" / files[name]).read_text()
        assert re.search("noisymax|NOISY_MAX", text)
        assert re.search("deterministic|TRUTHTABLE", text)
        assert isinstance(BY_NAME[name].parse(text, "f"), BayesianNetwork)


DECISIONS = {"Hugin net": YES, "XMLBIF": "read", "XDSL": YES, "DSL": YES}


def test_the_documentation_shows_this_table() -> None:
    text = (ROOT / "docs" / "formats.rst").read_text(encoding="utf-8")
    table = text[text.index(".. csv-table::") : text.index("*words*:")].split("\n\n")[1]
    rows = list(csv.reader(line.strip() for line in table.splitlines()))
    columns = ["names", "states", "positions", "labels", "attributes"]
    wanted = []
    for name, cell in FEATURES.items():
        target = BY_NAME[name]
        suffixes = ", ".join(f"{s} (read)" if s in target.only_read else s for s in target.suffixes)
        decisions = DECISIONS.get(name, NO)
        markov, canonical = YES if name in MARKOV else NO, CANONICAL.get(name, NO)
        wanted.append([name, suffixes, markov, *(cell[c] for c in columns), canonical, decisions])
    assert rows == wanted
    assert list(FEATURES) == NAMES


def test_write_renames_on_request(tmp_path: Path) -> None:
    net = BayesianNetwork({"Has Kids?": ["yes", "no"]}, {}, {"Has Kids?": [0.25, 0.75]})
    path = tmp_path / "kids.net"
    with pytest.raises(FormatError, match=r"'Has Kids\?' cannot be written .*; write\(.*rename=True\) changes it"):
        write(net, path)
    [lost] = write(net, path, rename=True)
    assert lost.startswith("names of 1 variable: 'Has Kids?' is ")
    written = read(path)
    assert isinstance(written, BayesianNetwork)
    assert written.attributes["node"][written.variables[0]]["label"] == "Has Kids?"
    assert write(written, path) == ()
