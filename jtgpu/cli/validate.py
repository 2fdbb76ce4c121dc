"""``jtgpu validate``: how well a network predicts a variable of the cases in a file."""

from __future__ import annotations

from typing import Any

import numpy as np
from click import BadParameter

from ..errors import NetworkError
from ..learn.validation import validate as validated
from ..learn.validation_result import NumberValidation
from ..model.dynamic import DynamicNetwork
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..model.network import BayesianNetwork
from ..options.learning import Keys
from ..options.tables import ReadOptions
from ..util.atomic_file import write_text
from .console import print_json, reading
from .declared import Validate
from .networks import check_picture, load_any_kind, with_codes
from .planning import require_no_decisions
from .tables import print_note, print_rows, status


def validate(o: Validate, keys: Keys, read: ReadOptions) -> None:
    """Run ``jtgpu validate``."""
    check_picture(o.draw, o.force)
    net: Any = with_codes(load_any_kind(o.file), o.codes)
    require_no_decisions(net, o.file)
    over_time = isinstance(net, (DynamicNetwork, MixedDynamicNetwork))
    if not over_time and not isinstance(net, (BayesianNetwork, MixedNetwork)):
        raise NetworkError("validate needs a Bayesian network, a network with numbers, or one over time")
    if not over_time and keys != Keys():
        raise BadParameter(f"the rows of sequences are those of a network over time, which {o.file} is not",
                           param_hint="--id, --time, --on-gap")
    reading(o.cases, read)
    with status("predicting"):
        result: Any = validated(
            net, o.cases, o.target, folds=o.folds, seed=o.seed, on_error="flag" if o.skip_impossible else "error",
            read=read, **({"keys": keys} if over_time else {}),
        )  # fmt: skip
    if o.draw is not None:
        write_text(o.draw, result.draw().text(o.draw.suffix))
    names, cells, _ = result._table()
    columns = [np.ma.asarray(c).tolist() for c in cells]  # of Python; None: undefined
    if o.json:
        report: dict[str, Any] = {
            "target": o.target, "rows": len(result.observed), "target_missing": result.n_missing,
            "impossible": result.n_impossible, "folds": o.folds,
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
    print_rows(names, zip(*columns, strict=True))
    print_note(result._title())
