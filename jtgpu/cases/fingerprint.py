"""The identity of a run, as JSON: everything that determines its answers.

Only a run of the same identity can be continued.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import JtgpuError
from ..model.discrete import DiscreteModel
from ..util.missing import na_words
from .options import TableOptions
from .query import TableQuery

SAMPLED = 1 << 16  # bytes of the beginning and the end of a file that are hashed
MAX_SHOWN = 80  # characters of a value in a message


def file_fingerprint(path: Path) -> dict[str, Any]:
    """Size, time of modification, and a digest of the beginning and the end of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.read(SAMPLED))
        size = file.seek(0, 2)
        file.seek(max(size - SAMPLED, 0))
        digest.update(file.read(SAMPLED))
    return {"size": size, "modified": path.stat().st_mtime_ns, "digest": digest.hexdigest()}


def model_fingerprint(model: DiscreteModel) -> str:
    """A digest of a model's variables, states, structure and numbers."""
    digest = hashlib.sha256()
    for v, name in enumerate(model.variables):
        digest.update(repr((name, model.states(v))).encode("utf-8", "surrogatepass"))
    for factor in model.factors:
        digest.update(repr(factor.scope).encode())
        digest.update(np.ascontiguousarray(factor.table).tobytes())
    return digest.hexdigest()


def query_fingerprint(query: TableQuery, kept: list[str], options: TableOptions) -> dict[str, Any]:
    """A query with the options that affect its answers."""
    do = None if not options.do else [[str(k), np.asarray(v).tolist()] for k, v in options.do.items()]
    na_values = None if options.na_values is None else sorted(na_words(options.na_values, is_text=True))
    return {**asdict(query), "keep": kept, "na_values": na_values, "do": do}


def check_same_run(before: Mapping[str, Any], now: Mapping[str, Any], folder: str) -> None:
    """Raise `JtgpuError` with the first difference between the identities of two runs."""
    for key in dict.fromkeys((*before, *now)):
        one, other = before.get(key), now.get(key)
        if one != other:
            if isinstance(one, dict) and isinstance(other, dict):
                check_same_run(one, other, folder)
            raise JtgpuError(
                f"{folder} holds a run with a different {key} ({_shortened(one)}, now {_shortened(other)}); pass "
                "force=True to discard it"
            )


def _shortened(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
