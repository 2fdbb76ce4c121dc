"""List every circle among the package's imports; except in late_imports.py, those for types and within functions count.

    python tools/import_circles.py [--list]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LATE_IMPORTS = "jtgpu.util.late_imports"  # names types of higher layers, and imports their modules on the first call


def imports(package: Path) -> dict[str, set[str]]:
    """The modules of our own that each module imports, by dotted name."""
    modules = {_name(path, package): path for path in sorted(package.rglob("*.py"))}
    found = {name: set(_targets(name, path, modules)) - {name} for name, path in modules.items()}
    return found | ({LATE_IMPORTS: set()} if LATE_IMPORTS in found else {})


def _name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _targets(name: str, path: Path, modules: dict[str, Path]) -> Iterator[str]:
    base = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    for node in _statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            start = base[: len(base) + 1 - node.level] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                if inner in modules:
                    yield inner
                elif module in modules:
                    yield module


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that are no expressions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from _statements(child)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan, 1972), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(v: str) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in sorted(graph[v]):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            at = stack.index(v)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for v in sorted(graph):
        if v not in index:
            visit(v)
    return sorted(found, key=len)


def main() -> int:
    """Print the circles; the exit code is 1 if there is one."""
    graph = imports(ROOT / "jtgpu")
    found = circles(graph)
    for component in found:
        print(f"{len(component)} modules import each other:")
        for name in component:
            print(f"    {name} -> {', '.join(sorted(graph[name] & set(component)))}")
    print(f"{len(graph)} modules, {sum(map(len, graph.values()))} imports, {len(found)} circles")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
