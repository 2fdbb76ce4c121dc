"""Files of unfinished runs: a run that continues from its file has the bits of one that was never interrupted."""

from __future__ import annotations

import io
import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ....errors import JtgpuError
from ....util.atomic_file import write_bytes
from ..npz import DAMAGED, read_arrays

if TYPE_CHECKING:
    from .runs import ChainRun

VERSION = 2
INTERVAL = 30.0  # seconds between two writes


class RunFile:
    """The file of a run."""
    # options: dict of str: What the run depends on: data, options and candidates, by name

    def __init__(self, path: str | Path, options: dict[str, str]):
        self._path, self._options = Path(path), options
        self._written, self._failed = -np.inf, False

    def resume(self, run: ChainRun) -> bool:
        """Continue from the file, if it exists."""
        # raises JtgpuError: If the file cannot be read, or is that of a run with other data or options, which are
        #     named.
        if not self._path.exists():
            return False
        try:
            arrays = read_arrays(self._path)
            head = json.loads(bytes(arrays.pop("head")))
            if head["version"] != VERSION:
                raise JtgpuError(f"the checkpoint {self._path} has version {head['version']}; expected {VERSION}")
            known = head["options"]
        except (OSError, AttributeError, *DAMAGED) as error:
            raise JtgpuError(f"the checkpoint {self._path} cannot be read: {error}") from None
        differ = [name for name, value in self._options.items() if known.get(name) != value]
        if differ:
            raise JtgpuError(
                f"the checkpoint {self._path} is that of another run: other {', '.join(differ)}; delete the file first"
            )
        try:
            run.restore(arrays, head["run"])
        except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
            raise JtgpuError(f"the checkpoint {self._path} is damaged: {error!r}") from None
        return True

    def write(self, run: ChainRun, complete: bool) -> None:
        """Write the file, unless that was done less than 30 seconds ago and the run goes on.

        UserWarning
            Once, if the file cannot be written, as on a full disk. The older file stays as it was, and the run goes on.
        """
        if not complete and time.monotonic() - self._written < INTERVAL:
            return
        arrays, numbers = run.arrays()
        head = json.dumps({"version": VERSION, "options": self._options, "run": numbers}, sort_keys=True)
        buffer = io.BytesIO()
        np.savez(buffer, head=np.frombuffer(head.encode(), np.uint8), **arrays)  # type: ignore[arg-type]
        try:
            write_bytes(self._path, buffer.getvalue(), durable=complete)
        except OSError as error:
            if not self._failed:
                reason = error.strerror or error
                warnings.warn(f"the checkpoint {self._path} cannot be written: {reason}", UserWarning, stacklevel=2)
            self._failed = True
        self._written = time.monotonic()
