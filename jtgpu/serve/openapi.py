"""The OpenAPI description of the HTTP interface, made from the types of bodies and answers."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from ..util.version import __version__
from .hosted import LayoutQuery
from .questions import QUESTIONS
from .replies import MSGPACK, PosteriorsQuery, ReplyQuery
from .requests import JSON, KINDS, PROBLEM
from .tables import TableQuery

REF = "#/components/schemas/{name}"


@cache
def openapi() -> bytes:
    """The description, as JSON."""
    questions = QUESTIONS.values()
    kinds = [*(q.body for q in questions), *(q.reply for q in questions)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    _close_tuples(components)
    components["Problem"] = _PROBLEM
    paths = dict(_PATHS)
    n = len(questions)
    for (name, q), body, reply in zip(QUESTIONS.items(), schemas[:n], schemas[n:], strict=True):
        parameters = _query(PosteriorsQuery if name == "posteriors" else ReplyQuery)
        asked = _operation(name, q.summary, parameters, reply, bodies={JSON: {"schema": body, "example": q.example}})
        content = asked["responses"]["200"]["content"]
        content[MSGPACK] = content[JSON]  # for clients that accept it
        paths[f"/v1/networks/{{network}}{q.path}"] = {"post": asked}
    for path, operations in paths.items():
        of_path = [_parameter(name, "path", _TEXT, _IN_PATHS[name]) for name in _IN_PATHS if f"{{{name}}}" in path]
        paths[path] = {m: {**one, "parameters": [*of_path, *one["parameters"]]} for m, one in operations.items()}
    description = {
        "openapi": "3.1.0",
        "info": {
            "title": "jtgpu", "version": __version__, "summary": "Exact inference in discrete Bayesian networks.",
            "description": "Every request contains its whole evidence: what the server keeps changes no answer.",
        },
        "servers": [{"url": "/", "description": "The server that sent this description."}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }
    return msgspec.json.encode(description)


@cache
def docs_page() -> str:
    """All paths as a page without scripts or other files."""
    description = msgspec.json.decode(openapi())
    rows = "".join(
        f"<tr><td>{method.upper()}</td><td><code>{html.escape(path)}</code></td><td>{html.escape(each['summary'])}</td>"
        f"<td>{html.escape(', '.join(p['name'] for p in each.get('parameters', ())))}</td></tr>\n"
        for path, methods in description["paths"].items()
        for method, each in methods.items()
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>jtgpu HTTP API</title></head><body>\n'
        f"<h1>jtgpu {__version__}: HTTP API</h1>\n<p>Every request and response in full: "
        '<a href="openapi.json">openapi.json</a> (OpenAPI 3.1), from which clients can be generated.</p>\n'
        "<table><thead><tr><th>Method</th><th>Path</th><th>Purpose</th><th>Parameters</th></tr></thead><tbody>\n"
        f"{rows}</tbody></table></body></html>\n"
    )


def _close_tuples(schema: object) -> None:
    """Leave out ``items: false`` next to ``maxItems``, which says the same: generators of clients reject it."""
    if isinstance(schema, dict):
        if schema.get("items") is False and "maxItems" in schema:
            del schema["items"]
        schema = list(schema.values())
    if isinstance(schema, list):
        for each in schema:
            _close_tuples(each)


def _parameter(name: str, where: str, schema: Mapping[str, object], text: str) -> dict[str, Any]:
    return {"name": name, "in": where, "required": where == "path", "schema": schema, "description": text}


def _query(kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
    """The fields of a struct as parameters of the query string."""
    _, components = msgspec.json.schema_components([kind])
    made = []
    for name, schema in components[kind.__name__]["properties"].items():
        schema = {**schema, **schema.pop("anyOf", [{}])[0]}  # one that may be left out
        if schema["default"] in (None, [], ""):
            del schema["default"]
        made.append(_parameter(name, "query", schema, schema.pop("description")))
    return made


def _operation(
    name: str, text: str, parameters: Sequence[object] = (), schema: object = None, kind: str = JSON,
    status: str = "200", bodies: object = None,
) -> dict[str, Any]:  # fmt: skip
    """A method of a path; those of its parameters that are in the path are added later."""
    schema = schema or {"type": "object" if kind == JSON else "string"}
    responses = {
        status: {"description": "The answer.", "content": {kind: {"schema": schema}}},
        "default": {
            "description": "A problem (RFC 9457).",
            "content": {PROBLEM: {"schema": {"$ref": REF.format(name="Problem")}}},
        },
    }
    made = {"operationId": name, "summary": text, "parameters": parameters, "responses": responses}
    return made if bodies is None else {**made, "requestBody": {"required": True, "content": bodies}}


_TEXT, _NUMBER = {"type": "string"}, {"type": "integer", "minimum": 0}
_IN_PATHS = {"network": "Name of the network.", "variable": "Name of the variable.", "job": "Number of the job."}
_PROBLEM = {
    "title": "Problem",
    "description": f"One of {', '.join(f'/errors/{kind} ({status})' for kind, (status, _) in KINDS.items())}.",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": _TEXT, "title": _TEXT, "status": _NUMBER, "detail": _TEXT, "variable": _TEXT, "state": {},
        "closest": {"type": "array", "items": _TEXT}, "findings": {"type": "array", "items": _TEXT},
        "needed": {}, "limit": {}, "predicted": {}, "row": _NUMBER, "id": _TEXT,
    },
}  # fmt: skip
# one media type: generators of clients leave out methods with several, and the server looks at the first bytes
_FILE: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_FORMAT = _parameter("format", "query", _TEXT, "The suffix of a file, such as bif.")
_PATHS: dict[str, Any] = {
    "/healthz": {"get": _operation("health", "Whether the process is running.")},
    "/readyz": {"get": _operation("ready", "Whether all networks are ready; 503 before, and while the server stops.")},
    "/metrics": {"get": _operation("metrics", "Metrics in the text format of Prometheus.", kind="text/plain")},
    "/v1/networks": {"get": _operation("networks", "All networks.")},
    "/v1/networks/{network}": {
        "get": _operation("network", "Kind, questions, variables, states, arcs, priors and the cost of the plan."),
        "put": _operation(
            "put_network", "Add or replace a network of the client's: as /model returns one, or a file.", [_FORMAT],
            status="201", bodies={JSON: {"schema": {"type": "object"}}, **_FILE},
        ),
        "delete": _operation("delete_network", "Remove a network of the client's."),
    },
    "/v1/networks/{network}/model": {"get": _operation("model", "The network with its CPTs, as PUT takes it.")},
    "/v1/networks/{network}/cpt/{variable}": {"get": _operation("cpt", "A CPT.")},
    "/v1/networks/{network}/file": {
        "get": _operation("file", "The network as a file.", [_FORMAT], kind="text/plain"),
    },
    "/v1/networks/{network}/layout": {"get": _operation("layout", "Positions for a drawing.", _query(LayoutQuery))},
    "/v1/networks/{network}/table": {
        "post": _operation(
            "table", "Answer every row of a table: the file that jtgpu batch writes; a job (202) if it is large.",
            _query(TableQuery), kind="text/csv", bodies=_FILE,
        ),
    },
    "/v1/networks/{network}/columns": {
        "post": _operation("columns", "The columns of a CSV file, and its first rows.", bodies=_FILE),
    },
    "/v1/jobs/{job}": {
        "get": _operation("job", "The state of a job."), "delete": _operation("cancel", "Cancel or remove a job."),
    },
    "/v1/jobs/{job}/events": {
        "get": _operation("events", "The state whenever it changes (SSE).", kind="text/event-stream"),
    },
    "/v1/jobs/{job}/file": {"get": _operation("answers", "The answers of a job.", kind="text/csv")},
}  # fmt: skip
_PATHS["/v1/networks/{network}/table"]["post"]["responses"]["202"] = {
    "description": "A job.", "content": {JSON: {"schema": {"type": "object"}}},
}  # fmt: skip
_PATHS["/v1/jobs/{job}"]["delete"]["responses"] = {"204": {"description": "Done."}}
