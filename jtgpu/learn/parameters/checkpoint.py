"""Checkpoints of EM: the CPTs of the last whole iteration, so that an interrupted run can continue."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...util.iteration import Iteration
from ..state_file import DAMAGED, StateFile
from .em import EMState
from .expectation import PassResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .setup import Setup

INTERVAL = 2.0  # seconds between two writes

NOTHING = PassResult([], 0.0, [])


def fingerprints(setup: Setup, data: str) -> dict[str, str]:
    """Digests of all that decides the result of a run, by name; `data` is that of the cases."""
    model, network = setup.model, setup.network
    # a network that only gives the structure does not decide the result
    uses_network = network is not None and (setup.start == "given" or bool(setup.sharing.fixed))
    cpts = [network.cpt(v) for v in network] if network is not None and uses_network else []
    return {
        "data": data,
        "structure": digest(repr([(v, model.states(v), model.parents(v)) for v in model])),
        "CPTs of the given network": digest(*cpts),
        "prior": digest(*setup.prior),
        "tied or fixed variables": digest(repr(setup.sharing)),
        "hidden variables": digest(repr(setup.hidden)),
        "start": f"{setup.start}, {setup.keep_zeros}",
    }


def digest(*parts: str | NDArray[Any]) -> str:
    """A hash of texts and arrays."""
    data = hashlib.sha256()
    for part in parts:
        data.update(part.encode() if isinstance(part, str) else repr(part.shape).encode() + part.tobytes())
    return data.hexdigest()


class Checkpoint:
    """A file with the state of a run."""

    # resume: Whether to continue from the file if it exists. Without it the file is replaced.
    # objectives: Of the starts that are done
    # best: The best of these, without counts
    # raises JtgpuError: If the file cannot be read, or is that of another run; the message names what differs.

    def __init__(self, path: str | os.PathLike[str], fingerprints: dict[str, str], *, resume: bool):
        self._file = StateFile(path, fingerprints, interval=INTERVAL, advice="delete it, or run without resume")
        self.objectives: list[float] = []
        self.best: EMState | None = None
        self._present: EMState | None = None
        saved = self._file.read() if resume else None
        if saved is not None:
            meta, arrays = saved
            try:
                self.objectives = [float(x) for x in meta["objectives"]]
                self.best = _restored(meta["best"], arrays, "b")
                self._present = _restored(meta["present"], arrays, "s")
            except DAMAGED as error:
                raise self._file.damaged(error) from None

    def resumed(self) -> EMState | None:
        """The state to continue from, without counts; None: begin with the next start. Used once."""
        state, self._present = self._present, None
        return state

    def write(
        self, state: EMState | None, objectives: Sequence[float], best: EMState | None, *, now: bool = False
    ) -> None:
        """Write the state, unless that has been done a moment ago."""
        if not now and not self._file.is_due():
            return
        arrays: dict[str, NDArray[Any]] = {}
        meta = {
            "objectives": list(objectives),
            "best": _stored(best, arrays, "b"),
            "present": _stored(state, arrays, "s"),
        }
        self._file.write(meta, arrays, durable=now)

    def finish(self) -> None:
        """Delete the file: the run is complete."""
        self._file.delete()


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
