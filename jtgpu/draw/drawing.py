"""`Drawing`: a picture that a notebook shows and that can be saved."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ArgumentError
from ..formats.common.files import write_bytes
from ..util.arguments import file_path, text
from .text import escaped

# pages and files have their own background: their readers may prefer dark or light
_SCHEME = (
    "{0}{{color:#1f2328;background:#fff}}@media(prefers-color-scheme:dark){{{0}{{color:#e6edf3;background:#0d1117}}}}"
)


class Drawing:
    """A picture.

    A notebook shows it with the colour of the page's text. ``str(drawing)`` is the SVG text.

    Attributes
    ----------
    svg : str
        One ``<svg>`` element with its own style, without scripts and without references to other files. The same
        model and options give the same text.
    width, height : int
        Pixels.
    title : str
        What the picture shows, in one line.
    """

    def __init__(self, svg: str, width: int, height: int, title: str):
        self.svg, self.width, self.height, self.title = svg, width, height, title

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, dark or light as its reader prefers.

        Parameters
        ----------
        path : path-like
            The suffix selects the format: ``.svg``, or ``.html`` for a page.

        Raises
        ------
        ArgumentError
            If the file has another suffix.
        FileError
            If the file cannot be written; also an `OSError`.
        """
        name = file_path("path", path)
        write_bytes(name, self.text(Path(name).suffix).encode())

    def text(self, suffix: str = ".svg") -> str:
        """Return the text of a file; see `save`.

        Parameters
        ----------
        suffix : {".svg", ".html"}
        """
        suffix = text("suffix", suffix)
        if suffix.lower() == ".svg":
            return self._standalone()
        if suffix.lower() in (".html", ".htm"):
            return (
                '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
                f'content="width=device-width"><title>{escaped(self.title)}</title><style>body{{margin:16px}}'
                f"{_SCHEME.format('body')}</style></head><body>\n{self.svg}\n</body></html>\n"
            )
        raise ArgumentError(f"a drawing is saved as .svg or .html, not as {suffix!r}")

    def _standalone(self) -> str:
        """The picture with a background."""
        name = self.svg.partition(' id="')[2].partition('"')[0]
        sheet = '<rect width="100%" height="100%" style="fill:var(--sheet,#fff)"/>'
        scheme = (
            f"#{name}{{color:#1f2328}}@media(prefers-color-scheme:dark){{#{name}{{color:#e6edf3;--sheet:#0d1117}}}}"
        )
        head, style, rest = self.svg.partition("<style>")
        inside, end, body = rest.partition("</style>")
        return f"{head}{style}{scheme}{inside}{end}{sheet}{body}\n"

    def _repr_html_(self) -> str:
        return f'<div style="overflow:auto;max-width:100%">{self.svg}</div>'

    def __str__(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Drawing({self.title!r}, {self.width} x {self.height})"
