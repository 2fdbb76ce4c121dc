"""The directive ``http-api``: every path of the server, from the OpenAPI description that the server sends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from jtgpu.serve.openapi import openapi

__all__ = ["api_lines", "setup"]

Schema = dict[str, Any]


def api_lines() -> Iterator[str]:
    """The page as reStructuredText: a section for each path, then one for each object."""
    description = json.loads(openapi())
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield from _operation(method.upper(), path, operation)
    yield from ["Objects", "-" * 7, ""]
    for name, schema in sorted(description["components"]["schemas"].items()):
        yield from _schema(name, schema)


def _operation(method: str, path: str, operation: Schema) -> Iterator[str]:
    title = f"{method} {path}"
    yield from [title, "-" * len(title), "", operation["summary"], ""]
    for parameter in operation.get("parameters", ()):
        where = {"path": "in the path", "query": "in the query", "header": "header"}[parameter["in"]]
        text = parameter.get("description", "")
        yield from [f"``{parameter['name']}`` : {_kind(parameter['schema'])}, {where}", f"    {text}", ""]
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        yield from [f"Body: {_kind(body.get('schema', {}))} (``{kind}``).", ""]
        if "example" in body:
            yield from [".. code-block:: json", "", f"   {json.dumps(body['example'])}", ""]
    for status, answer in operation.get("responses", {}).items():
        for kind, content in answer.get("content", {"": {}}).items():
            said = f" {_kind(content.get('schema', {}))} (``{kind}``)." if kind else ""
            yield from [f"Status {status}: {answer['description']}{said}", ""]


def _schema(name: str, schema: Schema) -> Iterator[str]:
    text = " ".join(schema.get("description", "").split())
    yield from [f".. _object-{name}:", "", name, "~" * len(name), "", text, ""]
    for field, kind in schema.get("properties", {}).items():
        yield from [f"``{field}`` : {_kind(kind)}", f"    {kind.get('description', '')}", ""]


def _kind(schema: Schema) -> str:
    """The type of a value in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f":ref:`{name} <object-{name}>`"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            kinds = [_kind(s) for s in schema[several] if s.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return " or ".join(f"``{json.dumps(v)}``" for v in schema["enum"])
    kind = schema.get("type", "any value")
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"array of ({_kind(schema['items'])})"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of ({_kind(schema['additionalProperties'])})"
    return str(kind)


class HttpApi(SphinxDirective):
    """See the module."""

    def run(self) -> list[nodes.Node]:
        """Parse the generated text in place of the directive."""
        self.content = StringList(list(api_lines()), source="openapi.json")
        self.content_offset = self.lineno
        return self.parse_content_to_nodes(allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.add_directive("http-api", HttpApi)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
