"""Check the built documentation site: every internal link has a target, every public name one page, no code is clipped.

    python tools/check_site.py build/docs

What is clipped is measured in Chromium, where it and playwright are installed: code on a desktop and a telephone, and
tables on a desktop. Tables of many columns scroll on a telephone, and those of notebooks everywhere.
"""

from __future__ import annotations

import re
import shutil
import sys
import zlib
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect."""
        for name, value in attrs:
            if value and name == "id":
                self.anchors.add(value)
            elif value and ((name == "href" and tag in ("a", "link")) or (name == "src" and tag in ("img", "script"))):
                self.links.append(value)


def broken_links(site: Path) -> list[str]:
    """A line for each link within the site that has no target."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        pages[path.resolve()] = page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{path.relative_to(site.resolve())}: {link}")
    return broken


def documented_names(site: Path) -> Counter[str]:
    """How many pages document each Python name, from the inventory of the site."""
    data = (site / "objects.inv").read_bytes()
    start = 0
    for _ in range(4):  # lines of the header
        start = data.index(b"\n", start) + 1
    lines = zlib.decompress(data[start:]).decode().splitlines()
    found = (re.match(r"(\S+)\s+py:(\w+)\s+(-?\d+)\s", line) for line in lines)
    return Counter(m[1] for m in found if m and m[3] != "-1")


WIDTHS = (1440, 390)  # pixels: a desktop, a telephone
CLIPPED = """telephone => [...document.querySelectorAll(telephone ? "pre" : "pre, table.docutils")].filter(e => {
    if (e.tagName === "PRE") return e.scrollWidth > e.clientWidth + 1;
    return e.getBoundingClientRect().right > e.parentElement.getBoundingClientRect().right + 1;
}).map(e => e.innerText.split("\\n").reduce((a, b) => b.length > a.length ? b : a, ""))"""


def clipped(site: Path) -> list[str] | None:
    """A line for each block of code and table that is wider than its column; None: there is no Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        return None
    found = []
    with sync_playwright() as driver:
        window = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for width in WIDTHS:
            page = window.new_page(viewport={"width": width, "height": 900})
            for path in sorted(site.rglob("*.html")):
                page.goto(path.resolve().as_uri(), wait_until="domcontentloaded")
                texts = page.evaluate(CLIPPED, width < 600)
                found += [f"{path.relative_to(site)}, {width} pixels: {text[:100]}" for text in texts]
        window.close()
    return found


def main(site: str) -> int:
    """Exit code: 0 if the site is complete."""
    folder = Path(site)
    broken = broken_links(folder)
    names = documented_names(folder)
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    import jtgpu

    missing = [f"jtgpu.{name}" for name in jtgpu.__all__ if f"jtgpu.{name}" not in names]
    twice = [name for name, n in names.items() if n > 1]
    wide = clipped(folder)
    checks = (
        ("broken link", broken), ("not documented", missing), ("documented twice", twice), ("clipped", wide or []),
    )  # fmt: skip
    for what, found in checks:
        for line in found:
            print(f"{what}: {line}", file=sys.stderr)
    print(f"{len(list(folder.rglob('*.html')))} pages, {len(names):,} names, {len(broken)} broken links", end="")
    print(", not seen in a browser: no Chromium" if wide is None else f", {len(wide)} clipped blocks")
    return bool(broken or missing or twice or wide)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
