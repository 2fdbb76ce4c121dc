"""The widget of notebooks: its messages, its traits, and the picture without it."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

import jtgpu
from jtgpu.model.states import StateNumber
from jtgpu.serve.page_module import page_module, page_style


@pytest.fixture(scope="module")
def tree() -> Any:
    return jtgpu.load("asia").compile("reference")


@pytest.fixture
def widget(tree: Any) -> Any:
    pytest.importorskip("anywidget", reason="anywidget is not installed (pip install 'jtgpu[notebook]')")
    pytest.importorskip("msgspec", reason="msgspec is not installed (pip install 'jtgpu[notebook]')")
    return jtgpu.widget(tree, {"xray": "yes"})


def test_a_picture_without_anywidget(tree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jtgpu.serve.notebook", raising=False)
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == "anywidget":
            raise ModuleNotFoundError("no anywidget", name="anywidget")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    found = jtgpu.widget(tree, {"xray": "yes"})
    assert isinstance(found, jtgpu.draw.Drawing)
    assert "xray" in found.svg


def test_numbers_become_names(widget: Any) -> None:
    widget.evidence, widget.do = {"xray": StateNumber(1), "smoke": [StateNumber(0), "no"]}, {"lung": StateNumber(0)}
    assert (widget.evidence, widget.do) == ({"xray": "no", "smoke": ["yes", "no"]}, {"lung": "yes"})
    widget.do = {"lung": [0.5, 0.5]}
    assert widget.do == {"lung": [0.5, 0.5]}


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (({"xray": "maybe"},), jtgpu.UnknownState, "has no state 'maybe'"),
        (({"x": "yes"},), jtgpu.UnknownVariable, "no variable 'x'"),
    ],
)
def test_wrong_evidence(tree: Any, arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        jtgpu.widget(tree, *arguments)


def test_wrong_arguments(tree: Any) -> None:
    with pytest.raises(jtgpu.ArgumentError, match="compiled model"):
        jtgpu.widget(tree.model)
    with pytest.raises(jtgpu.ArgumentError, match="no argument 'weights'; its arguments are"):
        jtgpu.widget(tree, weights={})


def test_traits(widget: Any) -> None:
    assert widget.evidence == {"xray": "yes"}
    widget.evidence = {"xray": "no", "smoke": ["yes", "no"]}
    with pytest.raises(jtgpu.UnknownState):
        widget.evidence = {"xray": "perhaps"}
    with pytest.raises(jtgpu.EvidenceError):
        widget.likelihood = {"dysp": [0.5, 0.5, 0.5]}
    widget.targets = ["lung"]
    with pytest.raises(jtgpu.UnknownVariable):
        widget.targets = ["nobody"]


def test_messages(widget: Any, tree: Any) -> None:
    def ask(method: str, *arguments: Any) -> Any:
        reply = widget.reply({"id": 7, "method": method, "arguments": list(arguments)})
        assert reply["id"] == 7
        return reply.get("answer", reply.get("problem"))

    assert [v["name"] for v in ask("network")["variables"]] == list(tree.model.variables)
    assert ask("layout", [0, 1], [840, 760])["nodes"] == [0, 1]
    assert len(ask("overview")["x"]) == 8
    assert ask("cpt", "lung")["parents"] == ["smoke"]
    found = ask("ask", "posteriors", {"evidence": {"xray": "yes"}})
    assert found["posteriors"]["lung"] == tree.posterior("lung", {"xray": "yes"}).probabilities.tolist()
    impossible = {"evidence": {"lung": "yes", "either": "no"}}
    cases = ask("ask", "posteriors", {"cases": [{"evidence": {"xray": "yes"}}, impossible]})
    assert cases["results"][0]["posteriors"]["lung"] == pytest.approx(found["posteriors"]["lung"])
    assert cases["results"][1]["error"]["type"] == "/errors/impossible-evidence"
    assert ask("ask", "posteriors", impossible)["type"] == "/errors/impossible-evidence"
    assert ask("ask", "posteriors", {"evidense": {}})["status"] == 422
    assert "status" in ask("open", "/etc/passwd")
    assert "status" in ask("ask", "eval", {})


HTML = "<!DOCTYPE html><html><head><style>{style}</style></head><body><div id='root'></div></body></html>"
DRIVER = """async ([code, traits]) => {
  const module = await import(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })));
  const listeners = {};
  const model = {
    get: name => traits[name], set: (name, value) => { traits[name] = value }, save_changes: () => {},
    on: (name, f) => { (listeners[name] ||= []).push(f) }, off: () => {},
    send: async message => {
      const reply = await window.reply(message);
      listeners['msg:custom'].forEach(f => f(reply)) },
  };
  window.model = model; window.listeners = listeners;
  window.stop = module.default.render({ model, el: document.getElementById('root') });
}"""


@pytest.mark.slow
def test_the_page_in_a_notebook(browser: Any, widget: Any, tree: Any) -> None:
    """The module as anywidget loads it, with a model whose messages are answered by the widget."""
    context = browser.new_context(viewport={"width": 1000, "height": 700})
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.extend([message.text] * (message.type == "error")))
    page.expose_function("reply", widget.reply)
    page.set_content(HTML.format(style=page_style()))
    traits = {"evidence": {"xray": "yes"}, "likelihood": {}, "soft": {}, "do": {}, "targets": [], "height": 600}
    page.evaluate(DRIVER, [page_module(), traits])
    page.wait_for_selector('.jtgpu[data-state="ready"]')
    page.wait_for_selector(".map .box")
    row = page.locator('.map .box[aria-label^="lung:"] .row').first
    assert row.locator(".number").text_content() == f"{100 * tree.posterior('lung', {'xray': 'yes'})['yes']:.1f}"
    page.locator('.map .box[aria-label^="smoke:"] .row').first.click()
    page.wait_for_selector('.jtgpu[data-state="ready"]')
    page.wait_for_function("() => window.model.get('evidence').smoke === 'yes'")
    assert page.evaluate("window.model.get('evidence')") == {"xray": "yes", "smoke": "yes"}
    page.evaluate("() => { model.set('evidence', { bronc: 'no' }); listeners['change:evidence'].forEach(f => f()) }")
    page.wait_for_function("() => document.querySelector('.chip-text').textContent === 'bronc = no'")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"  # the notebook's own
    page.evaluate("window.stop()")
    context.close()
    assert problems == []
