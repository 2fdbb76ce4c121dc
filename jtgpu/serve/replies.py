"""How an answer is sent: JSON or MessagePack; posteriors by variable, as one array, or only those that have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.types import Scope

from ..errors import ArgumentError
from ..inference.tree import JunctionTree
from ..util.lru import LRU
from .registry import Distribution, Form, rounded, spans, with_labels
from .requests import JSON, flag, number

if TYPE_CHECKING:
    from ..util.arrays import Floats

MSGPACK = "application/vnd.msgpack"
_NAMES = (b"application/vnd.msgpack", b"application/msgpack", b"application/x-msgpack")
_EXACT = 22  # the largest exact power of ten
_TENS = np.array([float(f"1e{e}") for e in range(_EXACT + 1)])
_POWERS = np.array([float(f"1e{e}") for e in range(-_EXACT, 1)])
KEPT_BYTES = 16 << 20  # of the last answers of a network, for clients that ask what has changed
_PLAIN = Form()


class Encoding(NamedTuple):
    """A way of writing a reply."""

    kind: str  # media type
    encode: Callable[[Any], bytes]


def _little_endian(array: Any) -> bytes:
    """An array of float64 in MessagePack, which has no arrays of one type: its bytes."""
    return np.asarray(array, "<f8").tobytes()


_JSON = Encoding(JSON, msgspec.json.Encoder(enc_hook=lambda array: array.tolist()).encode)
_MSGPACK = Encoding(MSGPACK, msgspec.msgpack.Encoder(enc_hook=_little_endian).encode)


def accepts(header: bytes, names: Sequence[bytes]) -> bool:
    """Whether a header such as Accept-Encoding has one of some names, with a quality that is not zero."""
    for part in header.lower().split(b","):
        name, _, quality = part.partition(b";")
        if name.strip() in names:
            return quality.strip().rstrip(b"0") not in (b"q=", b"q=0.", b"q=.")
    return False


def encoding_of(accept: bytes) -> Encoding:
    """MessagePack for clients whose header Accept names it, else JSON."""
    return _MSGPACK if accept and accepts(accept, _NAMES) else _JSON


def form_of(scope: Scope, is_posteriors: bool) -> Form:
    """The form that a request's parameters ask for."""
    # is_posteriors: Whether the question is one case's posteriors
    # raises ArgumentError: If parameters contradict each other or the question.
    if not scope.get("query_string"):
        return _PLAIN
    request = Request(scope)
    labels, flat, since = flag(request, "labels"), flag(request, "flat"), request.query_params.get("since")
    if flat and (labels or since is not None):
        raise ArgumentError("flat=1 excludes labels=1 and since")
    if (flat or since is not None) and not is_posteriors:
        raise ArgumentError("flat and since are for posteriors of one case, without soft evidence and interventions")
    return Form(labels, number(request, "digits", None, 1, 17), flat, since)


def round_all(values: Floats, digits: int) -> Floats:
    """`rounded` of an array of numbers from 0 to 1, 20 times as fast."""
    result = np.asarray(values, np.float64).copy()
    # the place of the first digit; where a power of ten is inexact the check below finds a wrong one
    exponent = np.searchsorted(_POWERS, result, side="right") - len(_POWERS)  # 0.1 <= x < 1: -1
    places = digits - 1 - exponent
    scale = _TENS[np.minimum(places, _EXACT)]
    scaled = result * scale
    whole = np.rint(scaled)
    # an integer and a power of ten that are exact have an exact quotient but for its one rounding, as a literal has
    sure = (places <= _EXACT) & (np.abs(np.abs(scaled - np.floor(scaled)) - 0.5) > 1e-3) & (scaled < 1e12)
    sure &= (whole > _TENS[digits - 1]) & (whole < _TENS[digits])
    result[sure] = whole[sure] / scale[sure]
    for i in np.flatnonzero(~sure & (result != 0.0) & (result != 1.0)):
        result[i] = rounded(float(result[i]), digits)
    return result


class _Kept(NamedTuple):
    """An answer that later ones may be compared with."""

    asked: tuple[Any, ...]  # targets, labels and digits
    flat: Floats


class PosteriorReplies:
    """Posteriors of one case of a network as plain data."""

    def __init__(self, tree: JunctionTree):
        self._model = tree.model
        self._columns = spans(tree.model, None)
        # Answers are found by their content: one that is forgotten, or that another worker computed, costs bytes of the
        # next reply and changes nothing in it.
        self._kept: LRU[str, _Kept] = LRU(max_bytes=KEPT_BYTES, size_of=lambda kept: kept.flat.nbytes)

    def reply(self, flat: Floats, log_evidence: float, targets: Sequence[int] | None, form: Form) -> dict[str, Any]:
        """The reply without its times."""
        # flat: Posteriors of the targets, one after another; of all variables if there are no targets
        reply: dict[str, Any] = {"log_evidence": rounded(log_evidence, form.digits)}
        if form.digits is not None:
            flat = round_all(flat, form.digits)
        if form.flat:
            return {**reply, "flat": flat}
        columns = spans(self._model, targets) if targets is not None else self._columns
        if form.since is not None:
            asked = None if targets is None else tuple(targets), form.labels, form.digits
            digest = hashlib.blake2b(flat.tobytes(), digest_size=12)
            digest.update(repr(asked).encode())
            kept = self._kept.get(form.since)
            if kept is not None and kept.asked == asked:
                reply["since"] = form.since
                columns = _differing(columns, flat, kept.flat)
            reply["tag"] = digest.hexdigest()
            self._kept.put(reply["tag"], _Kept(asked, flat.copy()))
        reply["posteriors"] = self._named(flat.tolist(), columns, form)
        return reply

    def _named(self, flat: list[float], columns: Mapping[int, slice], form: Form) -> dict[str, Distribution]:
        """Some posteriors by variable."""
        names, model = self._model.variables, self._model
        if form.labels:
            return {names[v]: with_labels(model, v, flat[at]) for v, at in columns.items()}
        return {names[v]: flat[at] for v, at in columns.items()}


def _differing(columns: Mapping[int, slice], flat: Floats, other: Floats) -> dict[int, slice]:
    """The variables whose numbers differ."""
    starts = [at.start for at in columns.values()]
    differs = np.logical_or.reduceat(flat != other, starts).tolist() if starts else []
    return {v: at for (v, at), is_other in zip(columns.items(), differs, strict=True) if is_other}
