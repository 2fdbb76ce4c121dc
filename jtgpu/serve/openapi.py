"""The OpenAPI description of the HTTP interface, made from the types of bodies and answers."""

from __future__ import annotations

import html
from functools import cache
from typing import Any

import msgspec

from ..util.version import __version__
from .hosted import LayoutQuery
from .questions import QUESTIONS
from .replies import MSGPACK, PosteriorsQuery, ReplyQuery
from .requests import JSON, KINDS
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
    paths = dict(_GET)
    n = len(questions)
    for (name, q), body, reply in zip(QUESTIONS.items(), schemas[:n], schemas[n:], strict=True):
        paths[f"/v1/networks/{{network}}{q.path}"] = {
            "post": {
                "operationId": name,
                "summary": q.summary,
                "parameters": [_NETWORK, *_query(PosteriorsQuery if name == "posteriors" else ReplyQuery)],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": body, "example": q.example}},
                },
                "responses": _encoded(_responses(reply)),
            }
        }
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


def _close_tuples(schema: Any) -> None:
    """Leave out ``items: false`` next to ``maxItems``, which says the same: generators of clients reject it."""
    if isinstance(schema, dict):
        if schema.get("items") is False and "maxItems" in schema:
            del schema["items"]
        schema = list(schema.values())
    if isinstance(schema, list):
        for each in schema:
            _close_tuples(each)


def _responses(schema: Any, kind: str = "application/json", status: str = "200") -> dict[str, Any]:
    return {
        status: {"description": "The answer.", "content": {kind: {"schema": schema}}},
        "default": {
            "description": "A problem (RFC 9457).",
            "content": {"application/problem+json": {"schema": {"$ref": REF.format(name="Problem")}}},
        },
    }


def _encoded(responses: dict[str, Any]) -> dict[str, Any]:
    """Responses that are also sent as MessagePack, to clients that accept it."""
    content = responses["200"]["content"]
    content[MSGPACK] = content[JSON]
    return responses


def _parameter(name: str, where: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": where, "required": where == "path", "schema": schema, "description": text}


def _query(kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
    """The fields of a struct as parameters of the query string."""
    _, components = msgspec.json.schema_components([kind])
    made = []
    for name, schema in components[kind.__name__]["properties"].items():
        schema = {**schema, **schema.pop("anyOf", [{}])[0]}  # one that may be left out
        if schema["default"] is None:
            del schema["default"]
        made.append(_parameter(name, "query", schema, schema.pop("description")))
    return made


def _get(name: str, text: str, parameters: list[Any], kind: str = "application/json") -> dict[str, Any]:
    schema = {"type": "object"} if kind == "application/json" else {"type": "string"}
    return {
        "get": {"operationId": name, "summary": text, "parameters": parameters, "responses": _responses(schema, kind)}
    }


_TEXT, _NUMBER = {"type": "string"}, {"type": "integer", "minimum": 0}
_NETWORK = _parameter("network", "path", _TEXT, "Name of the network.")
_JOB = _parameter("job", "path", _TEXT, "Number of the job.")
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
_UPLOAD: dict[str, Any] = {
    kind: {"schema": {}}
    for kind in ("text/csv", "application/vnd.apache.parquet", "application/vnd.apache.arrow.stream")
}
_GET: dict[str, Any] = {
    "/healthz": _get("health", "Whether the process is running.", []),
    "/readyz": _get("ready", "Whether all networks are ready; 503 before, and while the server stops.", []),
    "/metrics": _get("metrics", "Metrics in the text format of Prometheus.", [], "text/plain"),
    "/v1/networks": _get("networks", "All networks.", []),
    "/v1/networks/{network}": {
        **_get("network", "Variables, states, arcs, priors and the cost of the plan.", [_NETWORK]),
        "put": {
            "operationId": "put_network",
            "summary": "Add or replace a network of the client's: as /model returns one, or a file.",
            "parameters": [_NETWORK, _parameter("format", "query", _TEXT, "The suffix of a file, such as bif.")],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {"schema": {"type": "object"}}, "application/octet-stream": {"schema": {}},
                },
            },
            "responses": _responses({"type": "object"}, "application/json", "201"),
        },
        "delete": {
            "operationId": "delete_network", "summary": "Remove a network of the client's.", "parameters": [_NETWORK],
            "responses": _responses({"type": "object"}, "application/json"),
        },
    },
    "/v1/networks/{network}/model": _get("model", "The network with its CPTs, as PUT takes it.", [_NETWORK]),
    "/v1/networks/{network}/cpt/{variable}": _get(
        "cpt", "A CPT.", [_NETWORK, _parameter("variable", "path", _TEXT, "Name of the variable.")]
    ),
    "/v1/networks/{network}/file": _get(
        "file", "The network as a file.",
        [_NETWORK, _parameter("format", "query", _TEXT, "A suffix such as bif.")], "text/plain",
    ),
    "/v1/networks/{network}/layout": _get(
        "layout", "Positions for a drawing.", [_NETWORK, *_query(LayoutQuery)]
    ),
    "/v1/networks/{network}/table": {
        "post": {
            "operationId": "table",
            "summary": "Answer every row of a table: the file that jtgpu batch writes; a job (202) if it is large.",
            "parameters": [_NETWORK, *_query(TableQuery)],
            "requestBody": {"required": True, "content": _UPLOAD},
            "responses": {
                **_responses({"type": "string"}, "text/csv"),
                "202": {"description": "A job.", "content": {"application/json": {"schema": {"type": "object"}}}},
            },
        }
    },
    "/v1/networks/{network}/columns": {
        "post": {
            "operationId": "columns", "summary": "The columns of a CSV file, and its first rows.",
            "parameters": [_NETWORK], "requestBody": {"required": True, "content": {"text/csv": {"schema": {}}}},
            "responses": _responses({"type": "object"}),
        }
    },
    "/v1/jobs/{job}": {
        **_get("job", "The state of a job.", [_JOB]),
        "delete": {
            "operationId": "cancel", "summary": "Cancel or remove a job.", "parameters": [_JOB],
            "responses": {"204": {"description": "Done."}},
        },
    },
    "/v1/jobs/{job}/events": _get("events", "The state whenever it changes (SSE).", [_JOB], "text/event-stream"),
    "/v1/jobs/{job}/file": _get("answers", "The answers of a job.", [_JOB], "text/csv"),
}  # fmt: skip
