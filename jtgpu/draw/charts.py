"""Charts: the bars of one posterior, and a tornado diagram."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..inference.results.marginals import Posterior
from .boxes import Box, bars_size, draw_bars
from .drawing import Drawing
from .svg import picture
from .text import escaped, shortened, text_width

if TYPE_CHECKING:
    from ..inference.results.sensitivities import Sensitivity

__all__ = ["draw_posterior", "draw_tornado"]

PAD, ROW, TITLE = 10, 20, 24
LABEL, CHART = 340, 320  # widths


def draw_posterior(posterior: Posterior) -> Drawing:
    """Draw a bar for each state, or for the most probable ones."""
    box = Box(posterior.variable, posterior.states, posterior.probabilities.tolist())
    name = shortened(posterior.variable, LABEL)
    inside, height = bars_size(box)
    width = max(inside, text_width(name) * 11 // 10) + 2 * PAD
    body = [
        f'<text class="h" x="{PAD}" y="16">{escaped(name)}</text>',
        draw_bars(box, PAD, TITLE, inside),
    ]
    height += TITLE + PAD // 2
    title = f"P({posterior.variable[:200]})"
    return Drawing(picture(body, width, height, title), width, height, title)


def draw_tornado(sensitivity: Sensitivity, n: int = 10, spread: float = 0.1) -> Drawing:
    """Draw the parameters that change a probability most; see `jtgpu.inference.results.sensitivities.Sensitivity`.

    Parameters
    ----------
    sensitivity : Sensitivity
        Result of ``tree.sensitivity(...)``.
    n : int
        Number of parameters.
    spread : float
        Each parameter changes from (1 - spread) to (1 + spread) times its value. Blue is the effect of the lower end,
        green that of the higher one.
    """
    bars = [bar for bar in sensitivity.tornado(n, spread) if math.isfinite(bar.at_low) and math.isfinite(bar.at_high)]
    p = sensitivity.probability
    ends = [p, *(end for bar in bars for end in (bar.at_low, bar.at_high))]
    low, high = min(ends), max(ends)
    scale = CHART / (high - low) if high > low else 0.0
    labels = [shortened(str(bar.parameter), LABEL) for bar in bars]
    left = PAD + max(map(text_width, labels), default=0) + PAD

    def x(value: float) -> float:
        return round(left + (value - low) * scale, 1)

    what = f"P({sensitivity.target[0]} = {sensitivity.target[1]})"
    title = f"{shortened(what, LABEL)} = {p:.6g}, parameters changed by {100 * spread:g} %"
    body = [f'<text class="h" x="{PAD}" y="16">{escaped(title)}</text>']
    for i, (bar, label) in enumerate(zip(bars, labels, strict=True)):
        y = TITLE + i * ROW
        body.append(f'<text class="r" x="{left - PAD}" y="{y + 14}">{escaped(label)}</text>')
        for name, end in (("b", bar.at_low), ("v", bar.at_high)):
            start, length = min(x(p), x(end)), abs(x(end) - x(p))
            body.append(f'<rect class="{name}" x="{start:g}" y="{y + 3}" width="{length:.1f}" height="14"/>')
        body.append(
            f'<text class="s" x="{left + CHART + PAD}" y="{y + 14}">{bar.at_low:.6g} to {bar.at_high:.6g}</text>'
        )
    bottom = TITLE + len(bars) * ROW
    body.append(f'<path class="k" d="M{x(p):g} {TITLE}V{bottom}"/>')
    body.append(f'<text class="s" x="{left}" y="{bottom + 16}">{low:.6g}</text>')
    body.append(f'<text class="s r" x="{left + CHART}" y="{bottom + 16}">{high:.6g}</text>')
    width, height = max(left + CHART + 160, text_width(title) * 11 // 10 + 2 * PAD), bottom + 24
    return Drawing(picture(body, width, height, title), width, height, title)
