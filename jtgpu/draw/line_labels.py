"""Places for the labels of lines, where they cover neither boxes nor other labels, and few lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .text import text_width

HEIGHT, GAP = 12, 5  # pixels of a label, and of the space to its line
SHARES = (0.5, 0.35, 0.65, 0.22, 0.78)  # of a segment, where a label may be
SAMPLES = 24  # points of a segment
ON_BOX, ON_LABEL = 1000, 300  # cost, in points of other lines

Point = tuple[int, int]


def label_places(
    labels: Sequence[str], lines: Sequence[Sequence[Point]], boxes: Sequence[tuple[int, int, int, int]]
) -> list[Point]:
    """The left end of the baseline of each label, next to its line; the first labels choose first."""
    # lines: sequence of sequences of (x, y): Points of the line of each label; see `jtgpu.draw.svg.curve`
    # boxes: sequence of (x, y, width, height)
    curves = [_points(line, np.linspace(0.0, 1.0, SAMPLES)) for line in lines]
    points = np.concatenate([np.empty((0, 2)), *curves])
    taken = np.array([(x, y, x + w, y + h) for x, y, w, h in boxes], np.float64).reshape(-1, 4)
    costs = np.full(len(taken), ON_BOX)
    found = []
    for label, line in zip(labels, lines, strict=True):
        width = text_width(label)
        best, cost = (0, 0), np.inf
        places = _points(line, np.array(SHARES)).reshape(-1, len(SHARES), 2)
        order = np.argsort(np.abs(np.arange(len(places)) - (len(places) - 1) / 2), kind="stable")
        for x, y in places[order].transpose(1, 0, 2).reshape(-1, 2).round():
            for left in (x + GAP, x - GAP - width):
                rect = left - 1, y - HEIGHT / 2, left + width + 1, y + HEIGHT / 2
                meets = (taken[:, 0] < rect[2]) & (taken[:, 2] > rect[0])
                meets &= (taken[:, 1] < rect[3]) & (taken[:, 3] > rect[1])
                inside = (points[:, 0] > rect[0]) & (points[:, 0] < rect[2])
                inside &= (points[:, 1] > rect[1]) & (points[:, 1] < rect[3])
                now = int(costs[meets].sum()) + int(inside.sum()) + (ON_BOX if left < 0 else 0)
                if now < cost:
                    best, cost = (int(left), int(y)), now
            if cost == 0:
                break
        x, y = best
        taken = np.vstack([taken, (x, y - HEIGHT / 2, x + width, y + HEIGHT / 2)])
        costs = np.append(costs, ON_LABEL)
        found.append((x, y + 4))
    return found


def _points(line: Sequence[Point], t: np.ndarray) -> np.ndarray:
    """Points of each segment of a line at some shares of its length, (segments * shares, 2)."""
    ends = np.array(line, np.float64)
    (x0, y0), (x1, y1) = ends[:-1].T[:, :, None], ends[1:].T[:, :, None]
    s = 1 - t
    side = 3 * t * t - 2 * t * t * t  # the last digit of t**3 depends on the processor
    down = 1.5 * (s * s * t + s * t * t)
    y = y0 * (s * s * s + down) + y1 * (t * t * t + down)
    return np.stack([x0 + (x1 - x0) * side, y], axis=-1).reshape(-1, 2)
