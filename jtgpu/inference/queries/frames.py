"""`predict_proba` and `predict`: a table in, a table of the same kind with answers out. `jtgpu.cases` computes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ...util import late_imports

if TYPE_CHECKING:
    from typing import Unpack

    from ...util.options import Frame, TableLike
    from ..compiled import CompiledModel
    from ..planning import FrameOptions

F = TypeVar("F", bound="Frame")


@overload
def predict_proba(
    self: CompiledModel, frame: F, targets: str | int | Iterable[str | int] | None = None, *,
    evidence_columns: str | Iterable[str] | None = None, **more: Unpack[FrameOptions],
) -> F:  ...  # fmt: skip
@overload
def predict_proba(
    self: CompiledModel, frame: TableLike, targets: str | int | Iterable[str | int] | None = None, *,
    evidence_columns: str | Iterable[str] | None = None, **more: Unpack[FrameOptions],
) -> Any:  ...  # fmt: skip
def predict_proba(
    self: CompiledModel, frame: TableLike, targets: str | int | Iterable[str | int] | None = None, *,
    evidence_columns: str | Iterable[str] | None = None, **more: Unpack[FrameOptions],
) -> Any:  # fmt: skip
    """Compute posteriors of every row of a table, as a table of the same kind.

    Parameters
    ----------
    frame : data frame, mapping, list of mappings, or array
        The cases; see `posteriors_batch`. Also a Ray dataset.
    targets : variables, optional
        Default: all variables that are not evidence; if all variables are, all of them.
    evidence_columns : names, optional
        Default: all columns that are variables and neither in `targets` nor in `joints`. Other columns are ignored,
        but a column whose name is almost that of a variable raises an error.
    joints : list of tuples of variables, optional
        Sets of variables that the tree keeps together (``net.compile(together=[...])``), whose joint probabilities
        follow those of the targets: columns ``lung,bronc=yes,no``.
    keep : names, optional
        Columns of `frame` to copy to the left of the result.
    log_evidence, conflict, mpe : bool
        Additional columns: ``log_evidence``, ln P(evidence); ``conflict``, see `conflict`; ``mpe:variable``, the
        state of each target in the row's most probable explanation, and ``log_mpe``.
    on_error : {"error", "flag"}
        Whether a row with an unknown state, probability zero or a question that is too large raises an error, or
        gets nulls and the reason in the column ``error``.
    do : mapping, optional
        Interventions for all rows; see `posteriors`.
    codes : optional
        What cells mean; see `posteriors_batch`.
    na_values : str or iterable of str, optional
        Words that mean "not observed" unless they are states, besides those of ``pandas.read_csv``
        (`jtgpu.cases.NA_VALUES`) in text files, in which empty cells are always missing; ``()``: only those.
    cluster : str or jtgpu.cluster.Cluster, optional
        A Ray cluster to compute on: ``"auto"``, ``"local"`` or ``"ray://host:10001"``.
    progress : bool or callable, optional
        True: show the number of cases, their rate and the remaining time in a line on stderr. A callable: called
        with the number of cases answered, again, and the number of all cases.

    Returns
    -------
    data frame
        A frame of the same kind as `frame` with the rows in the same order and float64 columns ``variable=state``.
        The index of a pandas frame is preserved. For a mapping or an array: a mapping of columns; for a list of
        mappings: a list of mappings.

    Raises
    ------
    UnknownState, ImpossibleEvidence
        If a row is invalid; the message has the row and the column.
    UnknownVariable, EvidenceError
        If a column is invalid.
    JtgpuError
        If narwhals or pyarrow is not installed; install ``jtgpu[frames]``.
    """
    answer = late_imports.cases().answer_frame
    return answer(self, frame, targets=targets, evidence_columns=evidence_columns, **more)


@overload
def predict(
    self: CompiledModel, frame: F, targets: str | int | Iterable[str | int] | None = None, *,
    evidence_columns: str | Iterable[str] | None = None, **more: Unpack[FrameOptions],
) -> F:  ...  # fmt: skip
@overload
def predict(
    self: CompiledModel, frame: TableLike, targets: str | int | Iterable[str | int] | None = None, *,
    evidence_columns: str | Iterable[str] | None = None, **more: Unpack[FrameOptions],
) -> Any:  ...  # fmt: skip
def predict(
    self: CompiledModel, frame: TableLike, targets: str | int | Iterable[str | int] | None = None, *,
    evidence_columns: str | Iterable[str] | None = None, **more: Unpack[FrameOptions],
) -> Any:  # fmt: skip
    """Predict the most probable state of each target in every row of a table.

    Targets are predicted independently; see `mpe` for the most probable configuration.

    Parameters
    ----------
    frame, targets, evidence_columns, **more
        See `predict_proba`.

    Returns
    -------
    data frame
        One column of state names for each target; a table of the same kind as `frame`, see `predict_proba`.
    """
    return late_imports.cases().answer_frame(
        self, frame, targets=targets, evidence_columns=evidence_columns, labels=True, **more
    )
