"""The form of ``--page``: its file is checked, and the server has it in place of the network's page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jtgpu.errors import ArgumentError
from jtgpu.inference.tree import JunctionTree
from jtgpu.serve import App
from jtgpu.serve.page_module import read_form
from tests.serve.client import Client

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "asia-form.json"


def test_the_example(asia: JunctionTree) -> None:
    app = App({"asia": asia}, page=str(EXAMPLE))
    client = Client(app)
    form = client.get("/v1/form").json()
    assert form["network"] == "asia"
    assert [q["variable"] for group in form["groups"] for q in group["questions"]] == ["asia", "smoke", "dysp", "xray"]
    assert "page/all-form.js" in client.get("/").text
    assert "page/all-main.js" in client.get("/map").text
    app.close()


def test_without_a_form(client: Client) -> None:
    assert client.get("/v1/form").status_code == 404
    assert client.get("/").text == client.get("/map").text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": "alarm"}, "there is no network 'alarm'; there is asia"),
        ({"targets": []}, "no targets"),
        ({"targets": [{"variable": "lungs"}]}, "lung"),
        ({"targets": [{"variable": "lung", "shown": ["maybe"]}]}, "maybe"),
        ({"targets": [{"variable": "lung", "shown": []}]}, "shows no state of 'lung'"),
        ({"targets": [{"variable": "lung"}, {"variable": "tub"}, {"variable": "lung"}]}, "shows 'lung' twice"),
        ({"groups": [{"questions": [{"variable": "xray", "states": {"no ": "x"}}]}]}, "no "),
        ({"groups": [{"questions": [{"variable": "xray"}, {"variable": "xray"}]}]}, "asks for 'xray' twice"),
        ({"colour": "red"}, "colour"),
        ({"title": 3}, "title"),
    ],
)
def test_a_form_is_checked_against_the_network(
    asia: JunctionTree, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "page.json"
    path.write_text(json.dumps(json.loads(EXAMPLE.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(ArgumentError, match="page") as error:
        read_form(str(path), {"asia": asia.model})
    assert message in str(error.value)


def test_a_question_may_be_a_target(asia: JunctionTree, tmp_path: Path) -> None:
    """Until it is answered, its bars show the posterior."""
    path = tmp_path / "page.json"
    change = {"targets": [{"variable": "xray"}]}
    path.write_text(json.dumps(json.loads(EXAMPLE.read_text(encoding="utf-8")) | change), encoding="utf-8")
    app = App({"asia": asia}, page=str(path))
    found = Client(app).ask("asia", "posteriors", {"evidence": {"xray": "yes"}, "targets": ["xray"]})
    assert found["posteriors"] == {"xray": [1, 0]}
    app.close()


def test_a_file_with_a_byte_order_mark(asia: JunctionTree, tmp_path: Path) -> None:
    path = tmp_path / "page.json"
    path.write_bytes(b"\xef\xbb\xbf" + EXAMPLE.read_bytes())
    assert read_form(str(path), {"asia": asia.model}) == read_form(str(EXAMPLE), {"asia": asia.model})


def test_files_without_an_end(asia: JunctionTree) -> None:
    """The size of a device is zero."""
    with pytest.raises(ArgumentError, match=r"more than 1,048,576 bytes"):
        read_form("/dev/zero", {"asia": asia.model})


def test_a_file_that_is_missing_or_no_json(asia: JunctionTree, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="No such file"):
        App({"asia": asia}, page=str(tmp_path / "none.json"))
    with pytest.raises(ArgumentError, match=r"page 'a\\x00b': embedded null byte"):
        App({"asia": asia}, page="a\0b")
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    with pytest.raises(ArgumentError, match="truncated"):
        App({"asia": asia}, page=str(tmp_path / "bad.json"))
    with pytest.raises(ArgumentError, match="api_only"):
        App({"asia": asia}, page=str(EXAMPLE), api_only=True)
