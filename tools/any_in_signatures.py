"""List what a type checker knows nothing of: ``Any`` in the signatures and attributes of public functions and classes.

    python tools/any_in_signatures.py

Data frames, and models of libraries that need not be installed, have no other type. tests/test_typing.py has the number
that is not to be exceeded; it only shrinks.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

PUBLIC = [
    "jtgpu", "jtgpu.cases", "jtgpu.causal", "jtgpu.cluster", "jtgpu.compat.pgmpy", "jtgpu.compat.pyagrum",
    "jtgpu.decisions", "jtgpu.draw",
    "jtgpu.draw.plots", "jtgpu.graphs", "jtgpu.interop.jax", "jtgpu.interop.torch", "jtgpu.learn", "jtgpu.mixed",
    "jtgpu.published.durbin", "jtgpu.published.outliers", "jtgpu.screen", "jtgpu.series", "jtgpu.serve",
    "jtgpu.util.options",
]  # fmt: skip


def any_in_signatures(modules: Iterable[str] = PUBLIC) -> dict[str, str]:
    """The annotations with ``Any``, by places such as ``jtgpu.learn.fit(prior)``; a class counts once."""
    found: dict[str, str] = {}
    seen: set[int] = set()
    for module in map(importlib.import_module, modules):
        for name in module.__all__:
            member = getattr(module, name)
            if id(member) not in seen and getattr(member, "__module__", "").startswith("jtgpu"):
                seen.add(id(member))
                found.update(_of(f"{module.__name__}.{name}", member))
    return found


def _of(name: str, member: object) -> Iterator[tuple[str, str]]:
    """The annotations of a function, or of a class and its methods."""
    for of, annotation in inspect.get_annotations(member).items() if callable(member) else ():
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", str(annotation))
        if re.search(r"\bAny\b", text) and (of == "return" or not of.startswith("_")):
            yield (f"{name}.{of}" if inspect.isclass(member) else f"{name}({of})"), text
    if inspect.isclass(member):
        for of, attribute in vars(member).items():
            if not of.startswith("_") or of in ("__init__", "__call__"):
                function = getattr(attribute, "fget", None) or getattr(attribute, "__func__", attribute)
                if inspect.isfunction(function):
                    yield from _of(f"{name}.{of}", function)


if __name__ == "__main__":
    listed = any_in_signatures()
    print("\n".join(f"{place}: {text}" for place, text in sorted(listed.items())))
    print(f"{len(listed)} places")
