"""Type in the first example of each page as a newcomer does: an installed jtgpu, an empty folder, no checkout.

    python tools/check_pages.py BIN [PAGE ...]   # the bin folder of an environment with jtgpu[pandas,serve]

The first example of a page is its first block of Python, session with ``>>>``, cell of a notebook, or command
``jtgpu ...`` (the first line of a block), whichever comes first. It has to run and to print what the page says. At the
end, a newcomer's walk: ``jtgpu serve nets/asia.net``, and a click in Chromium, if playwright is installed here.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

# pages of tables, lists and drawings, and those whose first example needs more than a plain machine
NO_EXAMPLE = {
    "docs/api.rst": "a list", "docs/architecture.rst": "for developers", "docs/benchmarks.rst": "tables",
    "docs/changes.rst": "a list", "docs/contributing.rst": "for developers", "docs/formats.rst": "tables",
    "docs/glossary.rst": "a list", "docs/http.rst": "a list", "docs/running-benchmarks.rst": "for developers",
    "docs/coming/index.rst": "a list", "docs/gallery/index.rst": "a list", "docs/installing.rst": "pip",
    "docs/learning-gpu.rst": "times", "docs/learning-methods.rst": "times", "docs/screening-methods.rst": "times",
    "docs/graphs-methods.rst": "times", "docs/series-speed.rst": "times", "docs/serving-speed.rst": "times",
    "docs/dynamic-speed.rst": "times", "docs/parameters-speed.rst": "times",
    "docs/cluster-sizing.rst": "times", "docs/cluster.rst": "needs Ray and cases",
    "docs/gpu.rst": "needs a GPU", "docs/tensors.rst": "needs PyTorch",
}  # fmt: skip
LIMIT = 300  # seconds for an example
FIRST = ("xray", "lung")  # what a newcomer observes, and wants to know
NAMES = ("chromium", "chromium-browser", "google-chrome")
BLOCK = r"\n\n?((?:(?:[ ]{3,}.*)?\n)+)"  # an indented block
STARTS = re.compile(
    r"^(?P<python>\.\. code-block:: python\n)"
    r"|^(?P<session>[ ]*>>> )"
    r"|^(?P<cell>```\{code-cell\} ipython3\n)"
    r"|^[ ]+(?P<command>jtgpu [a-z].*)\n",
    re.MULTILINE,
)


class Example(NamedTuple):
    """What is typed in, and what is printed."""

    kind: str  # python, session, cell, command
    text: str
    expected: str | None = None  # None: the page does not say


def pages() -> dict[str, Path]:
    """Every page that a user reads, by its path in the checkout."""
    found = [ROOT / "README.rst", *(ROOT / "docs").glob("*.rst"), *(ROOT / "docs" / "coming").glob("*.rst")]
    found += (ROOT / "docs" / "gallery").glob("*.*")
    return {path.relative_to(ROOT).as_posix(): path for path in sorted(found)}


def first_example(page: str) -> Example | None:
    """The first example of a page; None if it has none."""
    start = STARTS.search(page)
    if start is None:
        return None
    kind, rest = str(start.lastgroup), page[start.start() :]
    if kind == "command":
        return Example(kind, re.split(r" {2,}#", start["command"])[0].strip())
    if kind == "cell":
        return Example(kind, rest.partition("\n")[2].partition("\n```")[0])
    if kind == "session":
        lines = iter(rest.splitlines(keepends=True))
        return Example(kind, textwrap.dedent("".join(_session(lines))))
    code = re.match(r"\.\. code-block:: python\n" + BLOCK, rest)
    assert code is not None
    # the output comes before the next code
    between = re.split(r"^\.\. code-block:: (?!text)", rest[code.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    output = re.search(r"^\.\. code-block:: text\n" + BLOCK, between, re.MULTILINE)
    return Example(kind, textwrap.dedent(code[1]), textwrap.dedent(output[1]).strip() if output else None)


def _session(lines: Iterator[str]) -> Iterator[str]:
    """The lines of a session up to the prose after it."""
    is_blank = False
    for line in lines:
        if is_blank and line.strip() and not line.lstrip().startswith(">>>"):
            return
        is_blank = not line.strip()
        yield line


def problems(bin_folder: Path, names: list[str] | None = None) -> list[str]:
    """What differs from what the pages say; a line each."""
    every = pages()
    chosen = {name: every[name] for name in names or every}
    found = [f"{name} does not exist" for name in NO_EXAMPLE if name not in every]
    examples = {}
    for name, path in chosen.items():
        example = first_example(path.read_text(encoding="utf-8"))
        if name in NO_EXAMPLE:
            continue
        if example is None:
            found.append(f"{name} has no example (see NO_EXAMPLE in {Path(__file__).name})")
        else:
            examples[name] = example
    with ThreadPoolExecutor(max(1, os.cpu_count() or 1)) as pool:
        texts = pool.map(lambda example: _try(example, bin_folder), examples.values())
        found += [f"{name}: {text}" for name, text in zip(examples, texts, strict=True) if text]
    return found


def _environment(bin_folder: Path, home: str) -> dict[str, str]:
    """A newcomer's: nothing of this process."""
    return {
        "PATH": f"{bin_folder}:/usr/local/bin:/usr/bin:/bin", "HOME": home, "LANG": "C.UTF-8", "BROWSER": "true",
        "JTGPU_CACHE_DIR": f"{home}/cache",
    }  # fmt: skip


def _try(example: Example, bin_folder: Path) -> str:
    """What is wrong with an example; empty if nothing is."""
    with tempfile.TemporaryDirectory(prefix="jtgpu-page-") as folder:
        environment = _environment(bin_folder, folder)
        python = str(bin_folder / "python")
        if example.kind == "command":
            words = shlex.split(example.text)
            if words[1] == "serve":
                return _served(words, folder, environment)
            command = [str(bin_folder / "jtgpu"), *words[1:]]
            for word in words[2:]:  # the reader's own table
                if word.endswith(".csv"):
                    Path(folder, word).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / "docs" / "examples" / Path(word).name, Path(folder, word))
        elif example.kind == "session":
            Path(folder, "page.txt").write_text(example.text, encoding="utf-8")
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            code = f"import doctest, sys; sys.exit(doctest.testfile('page.txt', False, optionflags={flags})[0])"
            command = [python, "-c", code]
        else:
            text = example.text.replace("../examples/", f"{ROOT / 'docs' / 'examples'}/")  # files next to the page
            Path(folder, "example.py").write_text(text, encoding="utf-8")
            command = [python, "example.py"]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT
        )
    if done.returncode:
        return f"exit code {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-1000:]}"
    if example.expected is not None and done.stdout.strip() != example.expected:
        return f"printed\n{done.stdout}\nnot\n{example.expected}"
    return ""


@contextmanager
def _serving(words: list[str], folder: str, environment: dict[str, str]) -> Iterator[str]:
    """Run ``jtgpu serve ...`` at a free port; the address that it prints."""
    command = [shutil.which("jtgpu", path=environment["PATH"]) or "jtgpu", *words[1:], "--port", "0"]
    server = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=60)
        if server.returncode and sys.exc_info()[0] is None:
            raise RuntimeError(f"exit code {server.returncode}: {errors[-500:]}")


def _served(
    words: list[str], folder: str, environment: dict[str, str], visit: Callable[[str], str] | None = None
) -> str:
    """Serve, and look at the page."""
    try:
        with _serving(words, folder, environment) as url:
            if not url.startswith("http"):
                return f"no address, but {url!r}"
            with urllib.request.urlopen(url, timeout=60) as page:
                if b"<title>jtgpu" not in page.read():
                    return f"no page at {url}"
            return visit(url) if visit else ""
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        return str(error)


def newcomer(bin_folder: Path) -> str:
    """``jtgpu serve nets/asia.net``, a click on a state, the answer; what is wrong, or an empty text."""
    with tempfile.TemporaryDirectory(prefix="jtgpu-walk-") as folder:
        Path(folder, "nets").mkdir()
        shutil.copy(ROOT / "nets" / "asia.net", Path(folder, "nets"))
        environment = _environment(bin_folder, folder)
        return _served(["jtgpu", "serve", "nets/asia.net"], folder, environment, _click)


def _click(url: str) -> str:
    """Observe xray = yes on the page, and read the answer for lung."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("the page was not clicked: playwright is not installed", file=sys.stderr)
        return ""
    if path is None:
        print("the page was not clicked: Chromium is not installed", file=sys.stderr)
        return ""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(url)
        xray, lung = (page.locator(f'.map .box[aria-label^="{v}:"], .map .box[aria-label^="{v},"]') for v in FIRST)
        xray.locator(".row", has_text="yes").first.click()
        answer = lung.locator(".row", has_text="yes").first.locator(".number").element_handle()
        page.wait_for_function("node => node.textContent.startsWith('48.9')", arg=answer, timeout=30000)
        browser.close()
    return ""


def main(bin_folder: str, *names: str) -> int:
    """Exit code: 0 if every example runs."""
    found = problems(Path(bin_folder).absolute(), list(names))
    if not names and (text := newcomer(Path(bin_folder).absolute())):
        found.append(f"newcomer: {text}")
    print("\n".join(found) or f"the first examples of {len(names) or len(pages()) - len(NO_EXAMPLE)} pages run")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
