"""Compiled networks and applications for the tests of the server."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

import jtgpu
from jtgpu.inference.tree import JunctionTree

if TYPE_CHECKING:
    from jtgpu.serve import App
    from tests.serve.client import Client

MISSING = [n for n in ("starlette", "uvicorn", "msgspec", "prometheus_client", "httpx") if find_spec(n) is None]
collect_ignore_glob = ["*"] if MISSING else []


def pytest_report_header() -> str | None:
    """Say why the tests of the server are left out, if they are: their modules could not be imported."""
    return f"tests/serve is left out: {', '.join(MISSING)} not installed" if MISSING else None


@pytest.fixture(scope="session")
def asia() -> Iterator[JunctionTree]:
    """A small network."""
    with jtgpu.load("asia").compile("cpu") as tree:
        yield tree


@pytest.fixture(scope="session")
def alarm() -> Iterator[JunctionTree]:
    """A network of 37 variables."""
    with jtgpu.load("alarm").compile("cpu") as tree:
        yield tree


@pytest.fixture(scope="session")
def app(asia: JunctionTree, alarm: JunctionTree) -> Iterator[App]:
    """An application with two networks."""
    from jtgpu.serve import App

    made = App({"asia": asia, "alarm": alarm})
    made.warm()
    yield made
    made.close()


@pytest.fixture(scope="session")
def client(app: App) -> Client:
    """A client of this application."""
    from tests.serve.client import Client

    return Client(app)
