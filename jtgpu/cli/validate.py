"""``jtgpu validate``: how well a network predicts a variable of the cases in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..columns.files import read_file
from ..errors import NetworkError
from ..learn.number_validation import NumberValidation
from ..learn.validation import validate as validated
from ..model.mixed import MixedNetwork
from ..model.network import BayesianNetwork
from ..util.arguments import Option
from ..util.atomic_file import write_text
from .batch import CsvInput
from .console import command, print_json, reading
from .networks import check_picture, load_any, with_codes
from .options import OUTPUT, Codes, File, Force, Json
from .tables import on_terminal, print_rows, status

EXAMPLES = (
    "jtgpu validate asia cases.csv -t bronc",
    "jtgpu validate asia cases.csv -t bronc --folds 10 --draw bronc.svg",
)


@command
def validate(  # noqa: PLR0913 (a Typer command)
    file: File,
    cases: Annotated[str, Option("CASES", "CSV or Parquet file: one column for each variable, one case per row.")],
    target: Annotated[str, Option("-t, --target VARIABLE", "The variable to predict from the other columns.",
        complete="targets")],
    folds: Annotated[int | None, Option(
        "--folds K", "Cross-validation: fit the CPTs to the other parts of the file, and predict each of K parts. "
        "Default: the network as it is predicts all cases.", least=2)] = None,
    seed: Annotated[int, Option("--seed N", "Seed of the random parts.", least=0)] = 0,
    skip_impossible: Annotated[bool, Option(
        "--skip-impossible", "Leave out cases of probability 0 and count them, instead of an error.")] = False,
    draw: Annotated[Path | None, Option(
        "--draw PATH", "Draw confusion matrix, ROC curves and calibration, or values and intervals of a number, to an "
        ".svg or .html file.",
        panel=OUTPUT)] = None,
    force: Force = False,
    *,
    codes: Codes = None,
    csv: CsvInput,
    json: Json = False,
) -> None:  # fmt: skip
    """Measure how well a network predicts a variable: accuracy, log loss, AUC, calibration.

    Of a number: root mean square error, R squared, log density and coverage.

    The probabilities of the target are those given all other cells of a case. Cases whose target is missing are left
    out.
    """
    if draw is not None:
        check_picture(draw, force)
    net: Any = with_codes(load_any(file), codes)
    if not isinstance(net, (BayesianNetwork, MixedNetwork)):
        raise NetworkError("validate needs a Bayesian network, or a network with numbers")
    with_states = net.discrete if isinstance(net, MixedNetwork) else net
    texts = {v: with_states.states(v) for v in with_states}
    table = read_file(cases, dialect=reading(cases, csv.dialect()), na_values=csv.na_values, states=texts)
    with status("predicting"):
        result: Any = validated(
            net, table, target, folds=folds, seed=seed, on_impossible="flag" if skip_impossible else "error",
            na_values=csv.na_values,
        )  # fmt: skip
    if draw is not None:
        write_text(draw, result.draw().text(draw.suffix))
    names, columns, _ = result._table()
    if json:
        report: dict[str, Any] = {
            "target": target, "rows": len(result.observed), "target_missing": result.n_missing,
            "impossible": result.n_impossible, "folds": folds,
        }  # fmt: skip
        if isinstance(result, NumberValidation):
            print_json(report | result.summary())
            return
        states = [dict(zip(names[1:6], row, strict=True)) for row in zip(*columns[1:6], strict=True)]
        print_json(report | {
            "accuracy": result.accuracy, "baseline": result.baseline, "log_loss": result.log_loss,
            "brier": result.brier,
            "calibration_error": result.calibration_error,
            "states": dict(zip(result.states, states, strict=True)),
            "confusion": result.confusion.tolist(),
        })  # fmt: skip
        return
    print_rows(names, [tuple(map(_cell, row)) for row in zip(*columns, strict=True)])
    for line in result._title().split("\n"):
        typer.echo(("" if on_terminal() else "# ") + line)


def _cell(x: Any) -> str | float:
    """Counts are whole numbers, and quantities that are undefined are empty."""
    return x if isinstance(x, float) else "" if x is None else str(x)
