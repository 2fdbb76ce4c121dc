"""How an answer is sent: JSON or MessagePack; posteriors by variable, as one array, or only those that have changed."""

from __future__ import annotations

import functools
import itertools
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta
from starlette.datastructures import QueryParams
from starlette.types import Scope

from ..errors import ArgumentError
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..util.loops import loops
from ..util.lru import LRU
from .registry import Form, rounded, with_labels
from .requests import JSON, parameters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..util.arrays import Floats

    Integers = NDArray[np.int64]

MSGPACK = "application/vnd.msgpack"
_NAMES = (b"application/vnd.msgpack", b"application/msgpack", b"application/x-msgpack")
_EXACT = 22  # the largest exact power of ten
_TENS = np.array([float(f"1e{e}") for e in range(_EXACT + 1)])
TEXT_DIGITS = 15  # significant digits of decimals that doubles tell apart
KEPT_BYTES = 64 << 20  # of the last answers of a network, for clients that ask what has changed
_TAG = re.compile(rb"(?:^|&)since=([0-9a-f]{24})(?=&|$)")
_loops = loops("jtgpu.serve.answer_loops")
NUMBER = 26  # bytes of a number, at most
SLACK = 32  # bytes that a number may be written beyond its end
SHORTEST = 17  # digits that tell all numbers apart
_json, _msgpack = msgspec.json.Encoder().encode, msgspec.msgpack.Encoder().encode


class Encoding(NamedTuple):
    """A way of writing a reply."""

    kind: str  # media type
    encode: Callable[[Any], bytes]
    is_binary: bool


def _little_endian(array: object) -> bytes:
    """An array of float64 in MessagePack, which has no arrays of one type: its bytes."""
    return np.asarray(array, "<f8").tobytes()


_JSON = Encoding(JSON, msgspec.json.Encoder().encode, False)
_MSGPACK = Encoding(MSGPACK, msgspec.msgpack.Encoder(enc_hook=_little_endian).encode, True)


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
    query: bytes = scope.get("query_string", b"")
    tag = _TAG.search(query)  # another one with every request; the rest is that of earlier requests
    if tag is None:
        return _parsed(query, is_posteriors)
    return _parsed(query[: tag.start(1)] + query[tag.end(1) :], is_posteriors)._replace(since=tag[1].decode())


class ReplyQuery(msgspec.Struct, kw_only=True):
    """Parameters of the query string of all questions."""

    digits: Annotated[int, Meta(ge=1, le=17, description="Significant digits.")] | None = None
    labels: Annotated[bool, Meta(description="Objects by the names of states in place of arrays.")] = False


class PosteriorsQuery(ReplyQuery, kw_only=True):
    """Those of posteriors."""

    flat: Annotated[bool, Meta(description="Posteriors of one case as one array, in the order of the variables.")] = (
        False
    )
    since: (
        Annotated[str, Meta(description="Tag of an earlier answer, or empty: only posteriors that differ from it.")]
        | None
    ) = None
    tolerance: Annotated[
        float, Meta(ge=0, le=1, description="With since: the largest difference that does not count.")
    ] = 0.0


@functools.lru_cache(256)
def _parsed(query: bytes, is_posteriors: bool) -> Form:
    q = parameters(QueryParams(query), PosteriorsQuery)
    if q.flat and (q.labels or q.since is not None):
        raise ArgumentError("flat=1 excludes labels=1 and since")
    if (q.flat or q.since is not None) and not is_posteriors:
        raise ArgumentError("flat and since are for posteriors of one case, without soft evidence and interventions")
    if q.tolerance and q.since is None:
        raise ArgumentError("tolerance is for answers of what has changed; begin with an empty since=")
    return Form(q.labels, q.digits, q.flat, q.since, q.tolerance)


def round_all(values: Floats, digits: int) -> Floats:
    """Numbers from 0 to 1, rounded to significant digits: `rounded` of an array."""
    numbers, exponents = decimals(values, digits).T
    result: Floats = numbers / _TENS[np.minimum(-exponents, _EXACT)]  # rounded once, as a literal is, if both are exact
    for i in np.flatnonzero((exponents < -_EXACT) | (numbers >= 1 << 53)).tolist():
        result[i] = float(f"{numbers[i]}e{exponents[i]}")
    return result


class _Kept(NamedTuple):
    """An answer as a client has it, to compare later ones with."""

    asked: tuple[Any, ...]  # variables and form
    numbers: NDArray[np.int64]  # bits of posteriors, or integers that are equal where the text is


class PosteriorReplies:
    """Posteriors of one case of a network as fields of a reply, those of its variables encoded."""

    def __init__(self, tree: JunctionTree):
        self._model = tree.model
        self._cards = np.asarray(tree.model.cardinality, np.int64)
        self._all = np.arange(len(self._cards))
        self._ptr = np.concatenate([[0], np.cumsum(self._cards)])
        self._equal_labels = [v for v in range(len(self._cards)) if len(set(tree.model.states(v))) < self._cards[v]]
        self._writers: dict[tuple[bool, bool], Distributions] = {}
        # An answer that is forgotten, or that another worker computed, costs bytes of the next reply and changes
        # nothing in it.
        self._kept: LRU[str, _Kept] = LRU(max_bytes=KEPT_BYTES, size_of=lambda kept: kept.numbers.nbytes)
        self._tags = map((secrets.token_hex(6) + "{:012x}").format, itertools.count())  # one at a time, of any thread

    def reply(
        self, flat: Floats, log_evidence: float, targets: Sequence[int] | None, form: Form, is_binary: bool
    ) -> dict[str, Any]:
        """The reply without its times."""
        # flat: Posteriors of the targets, one after another; of all variables if there are no targets
        reply: dict[str, Any] = {"log_evidence": rounded(log_evidence, form.digits)}
        if form.flat and is_binary:
            return {**reply, "flat": flat if form.digits is None else round_all(flat, form.digits)}
        if form.flat:
            return {**reply, "flat": msgspec.Raw(flat_json(decimals(flat, form.digits)))}
        variables = self._all if targets is None else np.array(targets, np.int64)
        if form.labels:
            for v in set(self._equal_labels).intersection(variables.tolist()):
                with_labels(self._model, v, [])  # raises
        if form.since is None:
            numbers = _numbers(flat, form, is_binary)
        else:
            numbers, variables = self._changed(reply, flat, variables, form, is_binary)
        reply["posteriors"] = self._writer(form.labels, is_binary).write(numbers, variables)
        return reply

    def _changed(
        self, reply: dict[str, Any], flat: Floats, variables: NDArray[np.int64], form: Form, is_binary: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The variables that differ from the answer that a client has, and their numbers; names both answers."""
        asked = variables.tobytes(), form._replace(since=""), is_binary
        rounds = form.digits is not None and form.digits <= TEXT_DIGITS and not form.tolerance
        numbers = _numbers(flat, form, is_binary) if rounds else flat.view(np.int64)[:, None]
        now = numbers[:, 0]
        if rounds and not is_binary:
            now = (now << 10) - numbers[:, 1]  # an integer for each decimal
        kept = self._kept.get(form.since or "")
        if kept is not None and kept.asked == asked:
            reply["since"] = form.since
            # differences from the answer that a client has do not add up: that of a variable it is not sent stays
            now, variables, cells = changed(now, kept.numbers, form.tolerance, variables, self._ptr)
            flat, numbers = flat.take(cells), numbers.take(cells, axis=0)
        reply["tag"] = next(self._tags)
        self._kept.put(reply["tag"], _Kept(asked, now.copy()))
        return numbers if rounds else _numbers(flat, form, is_binary), variables

    def _writer(self, labels: bool, is_binary: bool) -> Distributions:
        if (labels, is_binary) not in self._writers:
            self._writers[labels, is_binary] = Distributions(self._model, labels, is_binary)
        return self._writers[labels, is_binary]


def _numbers(values: Floats, form: Form, is_binary: bool) -> NDArray[np.int64]:
    """Numbers as they are sent: bits of doubles, or decimals."""
    if not is_binary:
        return decimals(values, form.digits)
    values = values if form.digits is None else round_all(values, form.digits)
    return np.ascontiguousarray(values).view(np.int64)[:, None]


@cache
def _powers() -> NDArray[np.uint64]:
    """(325, 2) powers of ten in 128 bits, rounded up, the first bit of which is set."""
    rows = []
    for e in range(325):
        power = 10**e
        shift = power.bit_length() - 128
        whole = power << -shift if shift <= 0 else (power >> shift) + 1
        rows.append((whole >> 64, whole & (1 << 64) - 1))
    return np.array(rows, np.uint64)


def decimals(values: Floats, digits: int | None) -> NDArray[np.int64]:
    """(n, 2) integers and exponents of ten: numbers from 0 to 1, rounded to significant digits."""
    numbers = np.empty((len(values), 2), np.int64)
    _loops.decimals(np.ascontiguousarray(values), digits or SHORTEST, _powers(), numbers)
    return numbers


def changed(
    now: Integers, before: Integers, tolerance: float, variables: Integers, ptr: Integers
) -> tuple[Integers, Integers, Integers]:
    """`before` with the numbers of variables that differ by more than the tolerance; these variables; their cells."""
    # now, before: Of the variables, one after another; with a tolerance above 0 bits of doubles
    # ptr: (V+1,) first cell of every variable of the model
    merged, others, cells = before.copy(), np.empty_like(variables), np.empty(len(now), np.int64)
    n, n_cells = _loops.merge(now, merged, tolerance, variables, ptr, others, cells)
    return merged, others[:n], cells[:n_cells]


def flat_json(numbers: NDArray[np.int64]) -> bytes:
    """`decimals` as an array."""
    n = len(numbers)
    commas, each, ends = np.full(n, ord(","), np.uint8), np.arange(n + 1), np.array([0, n])
    out = np.empty((NUMBER + 1) * n + SLACK, np.uint8)
    size = _loops.write(numbers, ends[:1], ends, commas, each, 0, 0, out) if n else 1
    return b"[%b]" % out[1:size].tobytes()


class Distributions:
    """Writes the posteriors of some variables of a model by their names."""

    # labels: By the names of states, too
    # is_binary: As MessagePack

    def __init__(self, model: DiscreteModel, labels: bool, is_binary: bool):
        self._is_binary = is_binary
        self._ptr = np.concatenate([[0], np.cumsum(model.cardinality)]).astype(np.int64)
        heads = [*(_packed_heads if is_binary else _json_heads)(model, labels)]
        self._heads = np.frombuffer(b"".join(heads), np.uint8)
        self._head_ptr = np.concatenate([[0], np.cumsum([*map(len, heads)], dtype=np.int64)])
        self._between, self._end = (0, 0) if is_binary else (ord(","), ord("}" if labels else "]"))

    def write(self, numbers: NDArray[np.int64], variables: NDArray[np.int64]) -> msgspec.Raw:
        """The posteriors as an object."""
        # numbers: Of the variables, one after another: `decimals`, or as MessagePack (n, 1) bits of doubles
        out = np.empty(len(self._heads) + NUMBER * len(numbers) + 2 * len(variables) + SLACK, np.uint8)
        size = _loops.write(
            numbers, variables, self._ptr, self._heads, self._head_ptr, self._between, self._end, out
        )  # fmt: skip
        text = out[:size].tobytes()
        return msgspec.Raw(_map_head(len(variables)) + text if self._is_binary else b"{%b}" % text)


def _json_heads(model: DiscreteModel, labels: bool) -> Iterator[bytes]:
    """The bytes before each cell."""
    for v, name in enumerate(model.variables):
        states: Sequence[str] = model.states(v) if labels else ()
        names = [_json(state) + b":" for state in states] or [b""] * int(model.cardinality[v])
        yield _json(name) + (b":{" if labels else b":[") + names[0]
        yield from (b"," + name for name in names[1:])


def _packed_heads(model: DiscreteModel, labels: bool) -> Iterator[bytes]:
    for v, name in enumerate(model.variables):
        n = int(model.cardinality[v])
        names = [*map(_msgpack, model.states(v))] if labels else [b""] * n
        yield _msgpack(name) + (_map_head(n) if labels else _msgpack([None] * n)[:-n]) + names[0]
        yield from names[1:]


def _map_head(n: int) -> bytes:
    """How a map of n items begins."""
    return bytes([0x80 | n]) if n < 16 else b"\xde" + n.to_bytes(2, "big") if n < 1 << 16 else b"\xdf" + n.to_bytes(4)
