"""The directive ``picture``: code whose last expression is a drawing, run when the site is built.

.. code-block:: rst

    .. picture:: The network asia

       jtgpu.draw.show(jtgpu.load("asia"))

The argument is the text for readers who do not see the picture. Names live as long as the page.
"""

from __future__ import annotations

import ast
import html

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

import jtgpu

__all__ = ["drawn", "setup"]


def drawn(code: str, names: dict[str, object]) -> str:
    """The SVG of the last expression of `code`."""
    body = ast.parse(code).body
    last = body.pop()
    if not isinstance(last, ast.Expr):
        raise ExtensionError(f"the last line of a picture has to be an expression: {code!r}")
    exec(compile(ast.Module(body, []), "picture", "exec"), names)
    return str(eval(compile(ast.Expression(last.value), "picture", "eval"), names))


class Picture(SphinxDirective):
    """See the module."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        """The drawing as SVG within the page, in the colours of the theme."""
        names = self.env.temp_data.setdefault("picture-names", {"jtgpu": jtgpu})
        svg = drawn("\n".join(self.content), names)
        label = html.escape(self.arguments[0], quote=True)
        box = f'<figure class="picture" role="img" aria-label="{label}">{svg}</figure>'
        return [nodes.raw("", box, format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
