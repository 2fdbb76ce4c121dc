"""Networks as a web service with a page: ``jtgpu serve``, ``tree.serve()``, and `App`, a plain ASGI application.

Needs ``jtgpu[serve]``. The server stores nothing between requests: every question carries its whole evidence, so any
worker answers it and a link is the state of the page.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..errors import JtgpuError

if TYPE_CHECKING:
    from .app import App
    from .server import Server, bind, make_app, run, serve
    from .settings import Settings
    from .workers import deployment, run_workers

__all__ = ["App", "Server", "Settings", "bind", "deployment", "make_app", "run", "run_workers", "serve"]

_WHERE = {
    "App": "app", "deployment": "workers", "Server": "server", "Settings": "settings", "bind": "server",
    "make_app": "server", "run": "server", "run_workers": "workers", "serve": "server",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f".{_WHERE[name]}", __name__)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("jtgpu"):
            raise
        raise JtgpuError(f"the server needs {error.name}: pip install '.[serve]' in a checkout") from None
    value = getattr(module, name)
    globals()[name] = value
    return value
