"""A new kind of question is one class: the server, OpenAPI and Python answer it without another change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jtgpu.inference.tree import JunctionTree
from jtgpu.serve import App
from jtgpu.serve.openapi import openapi
from jtgpu.serve.questions import QUESTIONS, answer
from jtgpu.serve.registry import Case, Form, Reply, question
from tests.serve.client import Client


class EntropyReply(Reply):
    """An entropy in nats."""

    entropy: float


@pytest.fixture
def entropy() -> Iterator[None]:
    """A question that the server does not have."""

    @question("/entropy", EntropyReply, "The entropy of a variable.", {"target": "lung"})
    class Entropy(Case, kw_only=True):
        """The entropy of a variable."""

        target: str

        def answer(self, tree: JunctionTree, form: Form) -> Any:
            return {"entropy": tree.entropy(self.target, self.evidence)}

    openapi.cache_clear()
    yield
    del QUESTIONS["entropy"]
    openapi.cache_clear()


@pytest.mark.usefixtures("entropy")
def test_a_question_is_a_class(asia: JunctionTree) -> None:
    app = App({"asia": asia})
    app.warm()
    client = Client(app)
    nats = asia.entropy("lung", {"xray": "yes"})
    body = {"target": "lung", "evidence": {"xray": "yes"}}
    assert client.ask("asia", "entropy", body)["entropy"] == nats == answer(asia, "entropy", body)["entropy"]
    assert client.ask("asia", "entropy", {"target": 1}, 422)["type"] == "/errors/invalid-body"
    assert client.get("/v1/networks/asia/entropy").status_code == 405
    assert "entropy" in client.get("/v1/networks").json()["questions"]
    described = client.get("/openapi.json").json()["paths"]["/v1/networks/{network}/entropy"]["post"]
    assert described["requestBody"]["content"]["application/json"]["example"] == {"target": "lung"}
    app.close()
