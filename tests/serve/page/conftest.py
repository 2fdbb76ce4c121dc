"""A server with its page, and the system's Chromium driven by playwright; without them, tests are skipped."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import jtgpu
from tests.serve.page.hostile import hostile_network

NAMES = ("chromium", "chromium-browser", "google-chrome")
DELAY = float(os.environ.get("JTGPU_TEST_DELAY", "0"))  # seconds before every reply: shows tests that do not wait


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium of this machine.

    For a module only: while playwright's API without coroutines is in use, this thread has a running event loop, and
    tests of other modules cannot start theirs.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        try:
            found = driver.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=60000)
        except playwright.Error as error:
            pytest.skip(f"Chromium does not start: {str(error)[:200]}")
        yield found
        found.close()


class Site:
    """A server in a thread of this process."""

    def __init__(self, trees: dict[str, Any], **options: Any):
        import uvicorn

        from jtgpu.serve import App

        app = App(trees, **options)

        async def delayed(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                await asyncio.sleep(DELAY)
            await app(scope, receive, send)

        config = uvicorn.Config(delayed if DELAY else app, host="127.0.0.1", port=0, log_level="error", lifespan="on")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until = time.monotonic() + 120
        while not self._server.started:
            if time.monotonic() > until or not self._thread.is_alive():
                raise RuntimeError("the server did not start")
            time.sleep(0.02)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"

    def close(self) -> None:
        """Stop the server."""
        self._server.should_exit = True
        self._thread.join(30)


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A server of asia, alarm, munin and a hostile network."""
    for package in ("uvicorn", "msgspec", "prometheus_client"):
        pytest.importorskip(package, reason=f"{package} is not installed (pip install 'jtgpu[serve]')")
    nets = {name: jtgpu.load(name) for name in ("asia", "alarm", "munin")}
    nets["hostile"] = hostile_network()
    trees = {name: net.compile("cpu") for name, net in nets.items()}
    server = Site(trees)
    yield server
    server.close()


class Visit:
    """A page of a browser, and what went wrong in it."""

    def __init__(self, context: Any, url: str):
        self.url, self.page = url, context.new_page()
        self.problems: list[str] = []
        self.allowed: tuple[str, ...] = ()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning") and not any(text in message.text for text in self.allowed):
            self.problems.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.problems.append(f"foreign request: {request.url}")

    def open(self, fragment: str, *, boxes: bool = True) -> Any:
        """Go to a state of the page and wait for its bars."""
        self.page.goto("about:blank")
        self.page.goto(self.url + fragment)
        self.ready(boxes=boxes)
        return self.page

    def ready(self, *, boxes: bool = False) -> None:
        """Wait until the bars are the answer to the evidence."""
        self.page.wait_for_selector('.jtgpu[data-state="ready"]', state="attached", timeout=60000)
        if boxes:
            self.page.wait_for_selector(".map .box", state="attached", timeout=60000)

    def row(self, variable: str, state: str) -> Any:
        """The bar of a state on the map."""
        return self.box(variable).locator(".row", has_text=state).first

    def box(self, variable: str) -> Any:
        """The box of a variable on the map."""
        title = self.page.locator(f'.map .box[aria-label^="{variable}:"], .map .box[aria-label^="{variable},"]')
        return title.first

    def number(self, variable: str, state: str) -> str:
        """The text after a bar on the map."""
        return str(self.row(variable, state).locator(".number").text_content())

    def panel(self, name: str) -> Any:
        """Open a panel and wait for its answer."""
        panel = self.page.locator(f".panel-{name}")
        panel.evaluate("node => { node.open = true; node.scrollIntoView(); }")
        self.page.wait_for_function(
            "name => { const p = document.querySelector('.panel-' + name);"
            " return p.open && !p.hasAttribute('aria-busy') && !p.classList.contains('stale') }",
            arg=name,
            timeout=60000,
        )
        return panel


@pytest.fixture
def visit(browser: Any, site: Site) -> Iterator[Visit]:
    """A wide window; the test fails on errors in the console and on requests to other hosts."""
    context = browser.new_context(
        viewport={"width": 1400, "height": 900}, reduced_motion="reduce", accept_downloads=True
    )
    found = Visit(context, site.url)
    yield found
    context.close()
    assert found.problems == []


@pytest.fixture
def phone(browser: Any, site: Site) -> Iterator[Visit]:
    """A window 360 pixels wide, with touch."""
    context = browser.new_context(
        viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True, reduced_motion="reduce"
    )
    found = Visit(context, site.url)
    yield found
    context.close()
    assert found.problems == []
