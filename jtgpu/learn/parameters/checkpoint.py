"""Checkpoints of EM: the CPTs of the last whole iteration, so that an interrupted run can continue."""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import JtgpuError
from ...model.directed import DirectedModel
from ...util.atomic_file import write_bytes
from .coded_cases import CodedCases
from .em import EMState, Iteration
from .expectation import Evaluation

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Checkpoint", "fingerprint"]

INTERVAL = 2.0  # seconds between two writes

NOTHING = Evaluation([], 0.0, [])


def fingerprint(model: DirectedModel, cases: CodedCases, options: str) -> str:
    """A hash of what a run depends on: variables, states, parents, rows, weights and options."""
    digest = hashlib.sha256()
    for v in model:
        digest.update(repr((v, model.states(v), model.parents(v))).encode())
    digest.update(options.encode())
    if cases.source.cells:
        digest.update(cases.source.cells.digest().encode())
    for block in cases.blocks:
        digest.update(np.ascontiguousarray(block.states).tobytes())
        digest.update(block.weights.tobytes())
    return digest.hexdigest()


class Checkpoint:
    """A file with the state of a run.

    Parameters
    ----------
    path : path
    fingerprint : str
        Of the run; see `fingerprint`.
    resume : bool
        Whether to continue from the file if it exists. Without it the file is replaced.

    Attributes
    ----------
    objectives : list of float
        Of the starts that are done.
    best : EMState, optional
        The best of these, without counts.

    Raises
    ------
    JtgpuError
        If the file cannot be read, or is that of another run.
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str, *, resume: bool):
        self._path, self._fingerprint = Path(path), fingerprint
        self.objectives: list[float] = []
        self.best: EMState | None = None
        self._present: EMState | None = None
        self._written = -np.inf
        if resume and self._path.exists():
            self._read()

    def _read(self) -> None:
        try:
            with np.load(self._path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            meta = json.loads(str(arrays.pop("meta")))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise JtgpuError(f"the checkpoint {self._path} cannot be read: {error}") from None
        if meta["fingerprint"] != self._fingerprint:
            raise JtgpuError(
                f"the checkpoint {self._path} is that of a run with other data or options; delete it, or run without "
                "resume"
            )
        self.objectives = [float(x) for x in meta["objectives"]]
        self.best = _restored(meta["best"], arrays, "b")
        self._present = _restored(meta["present"], arrays, "s")

    def resumed(self) -> EMState | None:
        """The state to continue from, without counts; None: begin with the next start. Used once."""
        found, self._present = self._present, None
        return found

    def write(
        self, state: EMState | None, objectives: Sequence[float], best: EMState | None, *, now: bool = False
    ) -> None:
        """Write the state, unless that has been done a moment ago."""
        if not now and time.monotonic() - self._written < INTERVAL:
            return
        arrays: dict[str, NDArray[Any]] = {}
        meta = {
            "fingerprint": self._fingerprint,
            "objectives": list(objectives),
            "best": _stored(best, arrays, "b"),
            "present": _stored(state, arrays, "s"),
        }
        buffer = io.BytesIO()
        np.savez(buffer, meta=np.array(json.dumps(meta)), **arrays)  # type: ignore[arg-type]
        write_bytes(self._path, buffer.getvalue(), durable=now)
        self._written = time.monotonic()

    def finish(self) -> None:
        """Delete the file: the run is complete."""
        self._path.unlink(missing_ok=True)


def _stored(state: EMState | None, arrays: dict[str, NDArray[Any]], letter: str) -> dict[str, Any] | None:
    """A state as JSON; its CPTs go to `arrays`."""
    if state is None:
        return None
    for v, table in enumerate(state.tables):
        arrays[f"{letter}{v}"] = table
    for v, table in enumerate(state.before or ()):
        arrays[f"{letter}before{v}"] = table
    return {
        "variables": len(state.tables), "before": state.before is not None, "objective": state.objective,
        "history": [list(entry) for entry in state.history], "reach": state.reach, "calm": state.calm,
        "converged": state.converged, "passes": state.passes,
    }  # fmt: skip


def _restored(stored: dict[str, Any] | None, arrays: dict[str, NDArray[Any]], letter: str) -> EMState | None:
    if stored is None:
        return None
    n = range(stored["variables"])
    return EMState(
        [arrays[f"{letter}{v}"] for v in n], NOTHING, stored["objective"],
        tuple(Iteration(*entry) for entry in stored["history"]),
        [arrays[f"{letter}before{v}"] for v in n] if stored["before"] else None,
        stored["reach"], stored["calm"], stored["converged"], passes=stored["passes"],
    )  # fmt: skip
