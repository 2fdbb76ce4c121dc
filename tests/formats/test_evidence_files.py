"""Evidence files: every layout, several cases, and errors with their places."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.errors import EvidenceError, JtgpuError, ParseError
from jtgpu.formats import Case, read_evidence_cases
from jtgpu.formats.evidence_files import parse_evidence
from jtgpu.inference.evidence import read_findings
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT

NET = BayesianNetwork(
    {"rain": ["no", "yes"], "a=b": ["x=y", "1", "z,w"], "wet": ["no", "yes"]},
    {"wet": ["rain"]},
    {"rain": [0.8, 0.2], "a=b": [0.25, 0.25, 0.5], "wet": [[0.9, 0.1], [0.2, 0.8]]},
)


def one(text: str) -> Case:
    cases = parse_evidence(text, NET)
    assert len(cases) == 1
    return cases[0]


def error_of(text: str) -> str:
    with pytest.raises(ParseError) as caught:
        parse_evidence(text, NET, "f")
    assert caught.value.line is not None
    return str(caught.value)


# UAI ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " \n\t\r\n", "0", "0\n", " 0 ", "1\n0\n", "c nothing\n0", "1 0", "0\n\n"])
def test_nothing_is_observed(text: str) -> None:
    assert one(text) == {}
    assert one(text) == Case()


@pytest.mark.parametrize(
    "text",
    [
        "2 0 1 2 0",
        "2\n0 1\n2 0\n",
        "2 0 1\r\n2 0",
        "1\n2 0 1 2 0\n",
        "1 2 0 1 2 0",
        "1\n2\n0 1\n2 0",
        "c a comment 7\n2 0 1 2 0",
        "/* Evidence */\n2\n0 1\n2 0\n",
        "2 0 1 2 0 \n\n",
        "3 0 1 2 0 0 1",
    ],
)
def test_one_case_of_numbers(text: str) -> None:
    assert one(text) == {"rain": 1, "wet": 0}
    assert list(one(text)) == ["rain", "wet"]


def test_several_cases_of_numbers() -> None:
    cases = parse_evidence("3\n1 0 1\n0\n2 1 2 2 0\n", NET)
    assert cases == [{"rain": 1}, {}, {"a=b": 2, "wet": 0}]
    assert parse_evidence("2 1 0 1 1 0 0", NET) == [{"rain": 1}, {"rain": 0}]  # too many for two pairs


def test_numbers_that_both_layouts_fit() -> None:
    assert parse_evidence("2 0 1 1 0", NET) == [{"rain": 1, "a=b": 0}]
    assert parse_evidence("2\n0\n1 1 0", NET) == [{}, {"a=b": 0}]
    assert parse_evidence("2\n0\n1\n1\n0", NET) == [{"rain": 1, "a=b": 0}]


def test_what_is_a_line_for_itself_is_one_in_ergo() -> None:
    assert parse_evidence("1\n1 0 1\n", NET) == [{"rain": 1}]
    assert parse_evidence("/* Evidence */ 1\n0 1\n", NET) == [{"rain": 1}]
    assert "expected the end of the file" in error_of("/* Evidence */ 1\n1 0 1\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 3 0", "1:3: found '3', expected the number of a variable, 0 to 2"),
        ("1 0 2", "1:5: found '2', expected the number of a state of 'rain', 0 to 1"),
        ("1\n1 0 2", "2:5: found '2', expected the number of a state of 'rain', 0 to 1"),
        ("1 -1 0", "1:3: found '-1', expected the number of a variable"),
        ("1 0 0.5", "1:5: found '0.5', expected the number of a state"),
        ("2 0 1 0 0", "1:7: found 'rain' a second time, in state 0 and not 1"),
        ("2 0 1", "1:6: found the end of the file, expected the number of a variable"),
        ("2\n1 0 1", "2:6: found the end of the file, expected the number of observed variables"),
        ("1 0 1 2", "1:7: found '2', expected the end of the file"),
        ("-1", "1:1: found '-1', expected the number of observed variables"),
        ("1 0 -", "1:5: found '-', expected a number"),
    ],
)
def test_errors_of_numbers(text: str, expected: str) -> None:
    assert error_of(text).startswith(f"f:{expected}")


# Lines --------------------------------------------------------------------------------------------------------


def test_a_variable_may_be_called_c() -> None:
    net = BayesianNetwork({"c": ["0", "1"], "cold": ["0", "1"]}, {}, {"c": [0.5, 0.5], "cold": [0.5, 0.5]})
    for text in ("c = 1", "c=1", "c =1\n"):
        assert parse_evidence(text, net) == [{"c": 1}]
    assert parse_evidence("cold=1\nc=0", net) == [{"cold": 1, "c": 0}]
    with pytest.raises(ParseError, match=r":2:1: found '1 0 1', expected name=state"):
        parse_evidence("cold=1\n1 0 1", net)


def test_lines() -> None:
    assert one("rain=yes\n\n  # a comment\n wet = no \r\na=b=z,w\n") == {"rain": 1, "wet": 0, "a=b": 2}
    assert one("a=b=x=y,1") == {"a=b": frozenset({0, 1})}
    assert one("# nothing\n") == {}
    assert parse_evidence("rain=yes\n---\n---\nwet=no", NET) == [{"rain": 1}, {}, {"wet": 0}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", "1:1: found 'hello', expected name=state, UAI's numbers, or JSON"),
        ("rain=yes\n 1 2", "2:2: found '1 2', expected name=state"),
        ("rain=yes\n  snow=no", "2:3: there is no variable 'snow'"),
        ("rain=yees", "1:1: variable 'rain' has no state 'yees'; did you mean 'yes'?"),
        ("rain=yes\nrain=no", "2:1: found 'rain' a second time; several states are written rain=a,b"),
        ("x" * 20_000, "1:1: found a line of 20,000 characters, expected name=state"),
    ],
)
def test_errors_of_lines(text: str, expected: str) -> None:
    assert error_of(text).startswith(f"f:{expected}")


# JSON ---------------------------------------------------------------------------------------------------------


def test_json() -> None:
    assert one(' {"rain": "yes", "wet": "no", "a=b": ["1", "z,w"]} ') == {"rain": 1, "wet": 0, "a=b": frozenset({1, 2})}
    assert one('{"rain": "yes", "wet": null}') == {"rain": 1}
    assert one("{}") == {}
    assert parse_evidence('[{"rain": "yes"}, {}, {"wet": "yes"}]', NET) == [{"rain": 1}, {}, {"wet": 1}]
    assert parse_evidence(" [ ] ", NET) == []
    assert one('{"ra\\u0069n": "yes"}') == {"rain": 1}


def test_weights() -> None:
    case = one('{"rain": [0.25, 1], "wet": {"yes": 3, "no": 0}, "a=b": {"x=y": 1, "1": 2, "z,w": 0}}')
    assert case == case
    assert case != {}
    assert dict(case) == {}
    assert {v: w.tolist() for v, w in case.likelihood.items()} == {
        "rain": [0.25, 1.0],
        "wet": [0.0, 3.0],
        "a=b": [1.0, 2.0, 0.0],
    }
    assert "likelihood={'rain'" in repr(case)
    evidence = read_findings(NET, case)
    assert {v: w.tolist() for v, w in evidence.likelihood.items()} == {
        0: [0.25, 1.0],
        2: [0.0, 3.0],
        1: [1.0, 2.0, 0.0],
    }
    # weights in addition to those of the file are further evidence
    both = read_findings(NET, case, {"rain": [2, 1]})
    assert both.likelihood[0].tolist() == [0.5, 1.0]


def test_weights_reach_the_answers() -> None:
    tree = NET.compile("reference", order="min-fill")
    case = one('{"wet": [0.5, 1.5], "a=b": "1"}')
    found = tree.posteriors(case)
    expected = tree.posteriors({"a=b": "1"}, likelihood={"wet": [0.5, 1.5]})
    assert np.array_equal(np.asarray(found["rain"]), np.asarray(expected["rain"]))
    assert found.log_evidence == expected.log_evidence
    p = 0.8 * (0.9 * 0.5 + 0.1 * 1.5) + 0.2 * (0.2 * 0.5 + 0.8 * 1.5)
    assert found.log_evidence == pytest.approx(math.log(p * 0.25))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "1:2: found the end of the file, expected a variable's name in double quotes"),
        ("[", "1:2: found the end of the file, expected an object: variables and their evidence"),
        ("[1]", "1:2: found '1', expected an object"),
        ("[{} {}]", "1:5: found '{', expected ',' or ']'"),
        ("{} x", "1:4: found 'x', expected the end of the file"),
        ("{rain: 1}", "1:2: found 'r', expected a variable's name in double quotes"),
        ('{"rain" 1}', "1:9: found '1', expected ':'"),
        ('{"rain": "no" "wet": 1}', "1:15: found '\"', expected ',' or '}'"),
        ('{"rain": "no",}', "1:15: found '}', expected a variable's name in double quotes"),
        ('{"rain": }', "1:10: found invalid JSON: expecting value"),
        ('{"rain": "yes', "1:10: found invalid JSON: unterminated string"),
        ('{"rain": NaN}', "1:10: found 'NaN', expected the evidence on a variable"),
        ('{"rain": ' + "9" * 5000 + "}", "1:10: found"),
        ('{"rain": ' + "[" * 100_000, "1:10: found too deeply nested brackets"),
        ('{\n "snow": 1}', "2:2: there is no variable 'snow'"),
        ('{\n "rain":\n  "yees"}', "3:3: variable 'rain' has no state 'yees'; did you mean 'yes'?"),
        ('{"rain": true}', "1:10: variable 'rain' has no state True"),
        ('{"rain": 2}', "1:10: variable 'rain' has no state 2"),
        ('{"rain": 1.5}', "1:10: variable 'rain' has no state 1.5"),
        ('{"rain": "no", "rain": "no"}', "1:16: found 'rain' a second time"),
        ('{"rain": [1]}', "1:10: found [1] for 'rain', expected 2 weights >= 0, one per state, or a list of"),
        ('{"rain": [1, -1]}', "1:10: found [1, -1] for 'rain', expected 2 weights >= 0"),
        ('{"rain": [1, "yes"]}', "1:10: found [1, \"yes\"] for 'rain', expected 2 weights"),
        ('{"rain": [0, 0]}', "1:10: found weights for 'rain' that are all zero"),
        ('{"rain": []}', "1:10: found [] for 'rain', expected 2 weights"),
        ('{"rain": ["yes", "maybe"]}', "1:10: variable 'rain' has no state 'maybe'"),
        ('{"rain": {"yes": 1}}', "1:10: found no weight of 'rain' for 'no'"),
        ('{"rain": {"yes": 1, "1": 1, "no": 1}}', "1:10: variable 'rain' has no state"),
        ('{"rain": {"yes": 1, "yes": 1}}', "1:10: found 'a repeated name', expected the evidence"),
        ('{"rain": {"yes": 1, "maybe": 1}}', "1:10: variable 'rain' has no state 'maybe'"),
        ('{"rain": {"yes": 1, "no": -1}}', "1:10: found -1 for 'rain' = 'no', expected a weight >= 0"),
        ('{"rain": {"yes": 1, "no": 1e999}}', "1:10: found Infinity for 'rain' = 'no', expected a weight >= 0"),
        ('{"rain": {"yes": 1, "2": 1}}', "1:10: variable 'rain' has no state"),
    ],
)
def test_errors_of_json(text: str, expected: str) -> None:
    assert error_of(text).startswith(f"f:{expected}")
    assert len(error_of(text)) < 1000


# Files --------------------------------------------------------------------------------------------------------


def test_files(tmp_path: Path) -> None:
    (tmp_path / "a.evid").write_text("1 0 1")
    assert jtgpu.read_evidence(tmp_path / "a.evid", NET) == {"rain": 1}
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'\xef\xbb\xbf[{"rain": "yes"}]'))
    assert jtgpu.read_evidence(str(tmp_path / "a.json.gz"), NET) == {"rain": 1}
    (tmp_path / "a.evid").write_text("2\n0\n1 0 1\n")
    assert read_evidence_cases(tmp_path / "a.evid", NET) == [{}, {"rain": 1}]
    with pytest.raises(EvidenceError, match=r"a\.evid: found 2 cases, expected one; .*read_evidence_cases"):
        jtgpu.read_evidence(tmp_path / "a.evid", NET)
    (tmp_path / "a.evid").write_text("[]")
    assert jtgpu.read_evidence(tmp_path / "a.evid", NET) == {}
    with pytest.raises(FileNotFoundError, match=r"no such file; did you mean 'a\.evid'"):
        jtgpu.read_evidence(tmp_path / "b.evid", NET)


@pytest.mark.slow
def test_all_files_of_2014(shared_nets: Path) -> None:
    seen = 0
    for path in sorted((shared_nets / "uai2014").glob("*.evid")):
        net = jtgpu.read(path.with_suffix(""))
        case = jtgpu.read_evidence(path, net)
        numbers = list(map(int, path.read_text().split()))
        if numbers and len(numbers) != 1 + 2 * numbers[0]:
            assert numbers.pop(0) == 1, path
        assert len(case) == (numbers[0] if numbers else 0)
        assert all(case[f"v{v}"] == s for v, s in zip(numbers[1::2], numbers[2::2], strict=True))
        seen += len(case)
    assert seen > 100


@given(
    st.text('{}[]":,= \n0123456789.-+eENanrwtyso#c/*\\u', max_size=40)
    | st.lists(st.sampled_from(["rain", "wet", "=", "yes", "no", "\n", "0", "1", "2", " ", '"', ":", "{", "}", ","]))
    .map("".join)
)  # fmt: skip
def test_anything_is_read_or_refused(text: str) -> None:
    try:
        cases = parse_evidence(text, NET)
    except JtgpuError as error:
        assert isinstance(error, ParseError)  # noqa: PT017
        assert error.line is not None  # noqa: PT017
        return
    for case in cases:
        read_findings(NET, case)


@given(st.lists(st.dictionaries(st.integers(0, 2), st.integers(0, 1), max_size=3), max_size=4))
def test_every_form_of_the_same_cases(given_cases: list[dict[int, int]]) -> None:
    names = NET.variables
    expected = [{names[v]: s for v, s in case.items()} for case in given_cases]
    by_name = [{v: NET.states(v)[s] for v, s in case.items()} for case in expected]
    assert parse_evidence(json.dumps(by_name), NET) == expected
    if expected:
        rows = [" ".join(map(str, [len(c), *(x for pair in c.items() for x in pair)])) for c in given_cases]
        assert parse_evidence("\n".join([str(len(rows)), *rows]), NET) == expected
        lines = ["".join(f"{names[v]}={NET.states(v)[s]}\n" for v, s in c.items()) for c in given_cases]
        if any(given_cases):
            assert parse_evidence("---\n".join(lines), NET) == expected


@pytest.mark.parametrize(
    "text", ["/* " * 200_000, "/*" * 300_000, "c\n" * 200_000, "=" * 200_000, "{" * 200_000, "0 " * 300_000 + "x"]
)
def test_long_input_ends_soon(text: str) -> None:
    try:
        parse_evidence(text, NET)
    except ParseError as error:
        assert len(str(error)) < 1000  # noqa: PT017


def test_the_name_is_public() -> None:
    assert "read_evidence" in jtgpu.__all__
    assert ROOT.is_dir()
