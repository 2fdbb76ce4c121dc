"""Input that cannot be learned from: the error of each kind, from every function, before anything is computed."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import jtgpu
from jtgpu.cli import app
from jtgpu.errors import ArgumentError, DataError, JtgpuError, TableTooLarge, UnknownVariable
from tests.learn.dags.data import in_records, random_table

RAIN = {"rain": ["no", "yes"] * 20, "wet": ["no", "no", "yes", "yes"] * 10, "road": ["a", "b", "a", "c"] * 10}
CALLS = (jtgpu.learn.posterior, jtgpu.learn.structure, jtgpu.learn.score_table)

DATA_ROWS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "an empty cell": (
        {**RAIN, "wet": ["no", None, *RAIN["wet"][2:]]}, {}, "row 1: column 'wet' has a missing value .*missing='drop'",
    ),
    "a label that is not declared": (
        RAIN, {"states": {"wet": ["no", "yess"]}}, "row 2: column 'wet': 'yes' is not a state.*yess",
    ),
    "no column of a declared variable": (RAIN, {"states": {"wat": ["no", "yes"]}}, "'wat', but .*no such column.*wet"),
    "one value": ({**RAIN, "wet": ["no"] * 40}, {}, "column 'wet' has only one value; read=.*'drop'. leaves it out"),
    "numbers that are not whole": ({**RAIN, "t": np.arange(40) / 3}, {}, "column 't' .*with fractions.*discretise"),
    "too many values": (
        {"x": [*range(256), *range(256)], "y": [0, 1] * 256}, {}, "column 'x' has 256 different numbers, too many",
    ),
    "no rows": ({"rain": [], "wet": []}, {}, "no rows"),
    "one column": ({"rain": ["no", "yes"]}, {}, "1 column; structure learning requires at least two"),
    "an identifier": ({**RAIN, "id": list(range(40))}, {}, "column 'id' has a different value .*identifier; leave it"),
    "negative weights": (RAIN, {"weights": [1] * 39 + [-1]}, "row 39: the weight -1 is not a whole number >= 0"),
    "weights that are not whole": (RAIN, {"weights": [0.5] * 40}, "row 0: the weight 0.5 is not a whole number"),
    "weights that are not numbers": (RAIN, {"weights": [float("nan")] * 40}, "row 0: the weight nan"),
    "no weight": (RAIN, {"weights": [0] * 40}, "all weights are zero"),
    "huge weights": (RAIN, {"weights": [1e300] * 40}, r"the weights add up to 4e\+301, more than 2,147,483,647"),
    "other lengths": ({**RAIN, "wet": ["no"]}, {}, "length"),
    "no table": (3, {}, "."),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", DATA_ROWS)
def test_data(call: Any, kind: str) -> None:
    data, options, message = DATA_ROWS[kind]
    with pytest.raises((DataError, ArgumentError), match=message):
        call(data, **in_records(options))


def test_equal_names(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("rain,wet,rain\n" + "0,1,0\n1,0,1\n" * 5)
    for call in CALLS:
        with pytest.raises(DataError, match="'rain'"):
            call(path)


@pytest.mark.parametrize("call", CALLS)
def test_identical_columns_are_reported(call: Any) -> None:
    copied = {**RAIN, "copy": [{"no": "1", "yes": "0"}[x] for x in RAIN["wet"]]}
    with pytest.warns(UserWarning, match="columns 'wet' and 'copy' are equal up to the names of their states"):
        call(copied)


CONSTRAINT_ROWS: dict[str, tuple[dict[str, Any], type[JtgpuError], str]] = {
    "a cycle": ({"required": [("rain", "wet"), ("wet", "rain")]}, ArgumentError, "cycle: 'rain' -> 'wet' -> 'rain'"),
    "required and forbidden": (
        {"required": [("rain", "wet")], "forbidden": [("rain", "wet")]}, ArgumentError, "'rain' -> 'wet' is both",
    ),
    "against the tiers": (
        {"required": [("rain", "wet")], "tiers": [["wet"], ["rain"]]}, ArgumentError, "'rain' -> 'wet' points to an",
    ),
    "too many required parents": (
        {"required": [("rain", "wet"), ("road", "wet")], "max_parents": 1}, ArgumentError, "'wet' has 2 required",
    ),
    "an unknown name": ({"forbidden": [("rain", "wett")]}, UnknownVariable, "no variable 'wett'.*'wet'"),
    "an unknown name of a tier": ({"tiers": [["rian"]]}, UnknownVariable, "no variable 'rian'.*'rain'"),
    "an unknown name of a limit": ({"max_parents": {"roda": 1}}, UnknownVariable, "no variable 'roda'.*'road'"),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS[:2])
@pytest.mark.parametrize("kind", CONSTRAINT_ROWS)
def test_constraints(call: Any, kind: str) -> None:
    options, error, message = CONSTRAINT_ROWS[kind]
    with pytest.raises(error, match=message):
        call(RAIN, **in_records(options))


def options_of(call: Callable[..., Any]) -> set[str]:
    """The arguments of a function, and the fields of those that are records."""
    parameters = inspect.signature(call).parameters.values()
    return {name for p in parameters for name in (p.name, *getattr(p.default, "__dict__", ()))}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ess": 0.0}, "ess must be"),
        ({"ess": -1.0}, "ess must be"),
        ({"ess": float("nan")}, "ess must be"),
        ({"ess": float("inf")}, "ess must be finite"),
        ({"max_parents": -1}, "max_parents must be"),
        ({"max_parents": 1.5}, "max_parents must be"),
        ({"score": "bdue"}, "score must be 'bdeu', 'bds', "),
        ({"graph_prior": "unifrom"}, "graph_prior must be 'uniform', 'fair', 'order' or"),
        ({"graph_prior": ("edge", 1.5)}, "above 0 and below 1"),
        ({"missing": "dorp"}, "missing must be 'error', 'drop'(,| or) 'available'"),
        ({"tolerance": 0.0}, "tolerance must be"),
        ({"tolerance": float("nan")}, "tolerance must be"),
        ({"seconds": -1.0}, "seconds must be"),
        ({"steps": 0}, "steps must be"),
        ({"n_chains": 3}, "n_chains must be"),
        ({"seed": -1}, "seed must be"),
        ({"candidates": "some"}, "candidates must be"),
        ({"method": "mcmcmc"}, "method must be 'auto', 'exact' or 'mcmc'"),
        ({"backend": "tpu"}, "backend must be"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    calls = [call for call in CALLS if {*options} <= options_of(call)]
    assert jtgpu.learn.posterior in calls
    for call in calls:
        given = {"method": "mcmc", **options} if "candidates" in options and call is CALLS[0] else options
        if call is CALLS[1] and "method" in options:
            message = "method must be 'auto', 'exact', 'order'"
        with pytest.raises(ValueError, match=message):
            call(
                RAIN,
                **in_records(given | {"method": "order"} if call is CALLS[1] and "candidates" in options else given),
            )


def test_sizes() -> None:
    large = random_table(3, n=30, n_rows=40)
    with pytest.raises(TableTooLarge, match=r"30 variables .*at most \d+.*use method='mcmc'"):
        jtgpu.learn.posterior(large, method="exact", max_parents=2)
    with pytest.raises(TableTooLarge, match=r"candidates=\d+ fits"):
        jtgpu.learn.posterior(
            large,
            method="mcmc",
            search=jtgpu.learn.Search(candidates=20),
            compute=jtgpu.Compute(memory_limit="20MB"),
            max_parents=2,
        )
    with pytest.raises(TableTooLarge, match="lower max_parents"):
        jtgpu.learn.score_table(large, compute=jtgpu.Compute(memory_limit="100kB"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = jtgpu.learn.posterior(
            large,
            search=jtgpu.learn.Search(candidates="auto"),
            compute=jtgpu.Compute(memory_limit="3MB"),
            max_parents=2,
            chains=jtgpu.learn.Chains(steps=1),
        )
    assert "candidate parents instead of 12: the tables of more exceed half of the memory limit" in found.describe()


EXIT_CODES = {
    "an empty cell": ("rain,wet\nno,no\nyes,\nno,yes\n", (), 2, "--missing drop leaves the rows out"),
    "one value": ("rain,wet\nno,no\nno,yes\n", (), 2, "only one value"),
    "an unknown name": ("rain,wet\nno,no\nyes,yes\n", ("--forbid", "rain,wett"), 2, "wett"),
    "a cycle": ("rain,wet\nno,no\nyes,yes\n", ("--require", "rain,wet", "--require", "wet,rain"), 2, "cycle"),
    "more memory": ("rain,wet\nno,no\nyes,yes\n", ("--memory-limit", "10"), 3, "limit"),
    "a broken file": ("rain,wet\nno,no\nyes,yes,no\n", (), 5, "cases.csv:3:1: 3 cells in a row of 2"),
    "no rows": ("rain,wet\n", (), 2, "no rows"),
    "an option": ("rain,wet\nno,no\nyes,yes\n", ("--ess", "nan"), 2, "ess"),
}


@pytest.mark.parametrize("kind", EXIT_CODES)
def test_exit_codes(kind: str, tmp_path: Path) -> None:
    text, words, code, message = EXIT_CODES[kind]
    path, net = tmp_path / "cases.csv", tmp_path / "learned.net"
    path.write_text(text)
    done = CliRunner().invoke(app, ["learn", str(path), "-o", str(net), *words])
    assert done.exit_code == code, done.output
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert not net.exists()
