"""Time from a click to all bars in a browser: the page of a server on this machine, by Chromium without a window.

    python bench/bench_page.py [alarm munin ...] [--clicks 200] [--smoke]

Rows of bench/results/page.jsonl. `first bars`: from the start of navigation until the bars are drawn. `click to bars`:
from a click on a state until the bars of all variables are set, medians and 95th percentiles, wall time, so other
processes disturb it; `load` is the load average before. `cpu` is the CPU time of the page's main thread a click, in
which the browser also paints. Without playwright or Chromium, nothing is measured.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from rows import parser_of, row, store

import jtgpu
import jtgpu.serve
from jtgpu.timing import Spread

NETWORKS = ("alarm", "munin")
NAMES = ("chromium", "chromium-browser", "google-chrome")
CLICKS = """async n => {
  const root = document.querySelector('.jtgpu');
  const ready = () => new Promise(done => {
    if (root.dataset.state === 'ready') { done(); return; }
    const watch = new MutationObserver(() => { if (root.dataset.state === 'ready') { watch.disconnect(); done(); } });
    watch.observe(root, { attributes: true }); });
  let x = 7;
  const random = () => (x = (1103515245 * x + 12345) % 2147483648) / 2147483648;
  const times = [];
  for (let i = 0; i < n; i += 1) {
    if (document.querySelectorAll('.chip').length > 6) { document.querySelector('.clear-all').click(); await ready(); }
    const possible = [...document.querySelectorAll('.map .row')]
      .filter(r => r.querySelector('.bar').width.baseVal.value > 3);
    const row = possible[Math.floor(random() * possible.length)];
    const begun = performance.now();
    row.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    await ready();
    times.push((performance.now() - begun) / 1000);
    await new Promise(done => setTimeout(done, 60));
  }
  return times;
}"""


def browser_path() -> str | None:
    """The program of a browser, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def rows_of(browser: Any, url: str, name: str, clicks: int) -> list[dict[str, Any]]:
    """The rows of one network."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    load = round(os.getloadavg()[0], 1)
    page.goto(f"{url}#n={name}")
    page.wait_for_selector(".map .box")
    first = page.evaluate("performance.now()") / 1000
    page.wait_for_timeout(500)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def main_thread() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))

    before = main_thread()
    times = sorted(page.evaluate(CLICKS, clicks))
    cpu = (main_thread() - before) / clicks
    page.close()
    p95 = times[min(int(0.95 * clicks), clicks - 1)]
    return [
        row("page", name, "first bars", Spread.of([first]), load=load),
        row("page", name, "click to bars", Spread.of(times), p95=p95, cpu=cpu, load=load),
    ]


def main() -> int:
    """Measure, print and store."""
    parser = parser_of(__doc__, "page.jsonl")
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--clicks", type=int, default=200)
    parser.add_argument("--backend", default="cpu")
    given = parser.parse_args()
    names, clicks, backend = (
        (["asia"], 3, "reference") if given.smoke else (given.networks, given.clicks, given.backend)
    )
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("not measured: playwright is not installed")
        return 0
    path = browser_path()
    if path is None:
        print("not measured: Chromium is not installed")
        return 0
    for name in names:
        tree = jtgpu.load(name).compile(backend)  # type: ignore[arg-type]
        server = jtgpu.serve.serve({name: tree})
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
            for found in rows_of(browser, server.url.partition("#")[0], name, clicks):
                p95 = f"p95 {1e3 * found['p95']:7.1f} ms" if "p95" in found else ""
                print(f"{name:8} {found['engine']:14} {1e3 * found['median']:8.1f} ms {p95}")
                store(given, [found])
            browser.close()
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
