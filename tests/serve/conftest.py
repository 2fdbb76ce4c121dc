"""Compiled networks and applications for the tests of the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import jtgpu
from jtgpu.inference.tree import JunctionTree

pytest.importorskip("msgspec", reason="needs jtgpu[serve]")
pytest.importorskip("uvicorn", reason="needs jtgpu[serve]")
pytest.importorskip("prometheus_client", reason="needs jtgpu[serve]")
pytest.importorskip("httpx", reason="needs httpx")

from jtgpu.serve import App
from tests.serve.client import Client


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
    made = App({"asia": asia, "alarm": alarm})
    made.warm()
    yield made
    made.close()


@pytest.fixture(scope="session")
def client(app: App) -> Client:
    """A client of this application."""
    return Client(app)
