"""Courses of posteriors over the slices of a sequence, a panel for each variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .drawing import Drawing
from .svg import escaped, picture, shortened, text_width

PAD, TITLE, PANEL, GAP = 10, 24, 72, 30  # heights, and the margin
CHART, LABEL = 360, 180  # widths
MOST_PANELS, MOST_POINTS = 6, 400
LINES = ("l", "g", "q", "k")  # classes; other states have no line


def draw_courses(title: str, slices: Sequence[int], courses: Sequence[Any]) -> Drawing | None:
    """Draw the probabilities of the most probable states, and numbers with bands of two standard deviations."""
    # courses: `jtgpu.dynamic.results.Course` of each variable
    # returns None for fewer than two slices.
    if len(slices) < 2 or not courses:
        return None
    stride = -(-len(slices) // MOST_POINTS)
    chosen = [*range(0, len(slices) - 1, stride), len(slices) - 1]
    at, left = [slices[i] for i in chosen], 60
    x = [left + (t - at[0]) * CHART / (at[-1] - at[0]) for t in at]
    more = f"; {MOST_PANELS} of {len(courses)} variables" if len(courses) > MOST_PANELS else ""
    head = shortened(f"{title}{more}", left + CHART + LABEL)
    body = [f'<text class="h" x="{PAD}" y="16">{escaped(head)}</text>']
    top = TITLE
    for course in courses[:MOST_PANELS]:
        band = np.zeros(len(at)) if course.sd is None else 2 * np.asarray(course.sd)[chosen]
        means = {name: np.asarray(values)[chosen] for name, values in course.lines.items()}
        shown = sorted(sorted(means, key=lambda s: -float(means[s].mean()))[: len(LINES)], key=[*means].index)
        low, high = 0.0, 1.0
        if course.sd is not None:
            low = min(float((m - band).min()) for m in means.values())
            high = max(float((m + band).max()) for m in means.values())
        scale = PANEL / (high - low) if high > low else 0.0

        def points(values: Any, top: int = top, high: float = high, scale: float = scale) -> str:
            return " ".join(f"{a:.1f},{top + (high - v) * scale:.1f}" for a, v in zip(x, values.tolist(), strict=True))

        ends = ((high, top + 10), (low, top + PANEL))
        body += [f'<text class="s r" x="{left - 6}" y="{y}">{value:.4g}</text>' for value, y in ends]
        body.append(f'<path class="a" d="M{left} {top}V{top + PANEL}H{left + CHART}"/>')
        name = shortened(course.name, LABEL)
        body.append(f'<text class="h" x="{left + CHART + PAD}" y="{top + 10}">{escaped(name)}</text>')
        for i, state in enumerate(shown):
            values = means[state]
            if band.any():
                there, back = points(values + band), points(values - band).split()[::-1]
                body.append(f'<path class="t" d="M{there} {" ".join(back)}z"/>')
            body.append(f'<path class="{LINES[i]}" d="M{points(values)}"/>')
            y = top + 26 + 14 * i
            text = "mean, 2 sd" if course.sd is not None else shortened(state, LABEL - 30)
            body.append(f'<path class="{LINES[i]}" d="M{left + CHART + PAD} {y - 4}h16"/>')
            body.append(f'<text class="s" x="{left + CHART + PAD + 22}" y="{y}">{escaped(text)}</text>')
        top += PANEL + GAP - 12
    body.append(f'<text class="s" x="{left}" y="{top}">slice {at[0]}</text>')
    body.append(f'<text class="s r" x="{left + CHART}" y="{top}">{at[-1]}</text>')
    width, height = max(left + CHART + PAD + LABEL, text_width(head) * 11 // 10 + 2 * PAD), top + PAD
    return Drawing(picture(body, width, height, title), width, height, title)
