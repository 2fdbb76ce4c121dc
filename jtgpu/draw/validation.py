"""A validation as a picture: the confusion matrix, the ROC curves and the calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .drawing import Drawing
from .structures import COLOURS
from .svg import escaped, picture, shortened, text_width

if TYPE_CHECKING:
    from ..learn.validation_result import NumberValidation, Validation

PAD, TITLE, LINE, GAP = 10, 24, 18, 40
CELL, MAX_CELL_TEXT = 56, 44  # pixels
LABEL = 140  # pixels of the name of a state
CHART = 220  # width and height of a curve
MAX_STATES = 12  # of a confusion matrix and of ROC curves; the most frequent ones
MAX_POINTS = 300  # of a curve


def draw_validation(validation: Validation) -> Drawing:
    """Draw a `jtgpu.learn.Validation`."""
    v = validation
    shown = np.sort(np.argsort(-v.support, kind="stable")[:MAX_STATES]).tolist()
    names = [shortened(v.states[k], LABEL) for k in shown]
    what = f"Prediction of {v.target}: accuracy {v.accuracy:.4g}, log loss {v.log_loss:.4g}, Brier score {v.brier:.4g}"
    head = shortened(what, 900)
    body = [f'<text class="h" x="{PAD}" y="16">{escaped(head)}</text>']
    left_of_matrix = PAD + max(map(text_width, names)) + PAD
    top = TITLE + LINE + 30
    body += _matrix(v, shown, names, left_of_matrix, top)
    x = left_of_matrix + CELL * len(shown) + GAP
    x_roc, x_calibration = x + 20, x + 20 + CHART + GAP + 20
    curves = [k for k in shown if 0 < v.support[k] < len(v.observed)]
    body += _frame(x_roc, top, "ROC: each state against the others", "share of others", "share of the state")
    legend = []
    for i, k in enumerate(curves):
        colour = COLOURS[i % len(COLOURS)]
        false, true, _ = v.roc(v.states[k])
        body.append(_line(false, true, x_roc, top, colour))
        legend.append((f"{shortened(v.states[k], LABEL)}, AUC {v.auc(v.states[k]):.3f}", colour))
    body += _frame(x_calibration, top, "Calibration of the predicted state", "probability", "share correct")
    _, p, share, count = v.calibration()
    body.append(_line(p, share, x_calibration, top, COLOURS[0]))
    for a, b, n in zip(p, share, count, strict=True):
        radius = 3 + 5 * float(n / count.max())
        body.append(
            f'<circle cx="{x_calibration + CHART * a:.1f}" cy="{top + CHART * (1 - b):.1f}" r="{radius:.1f}" '
            f'fill="{COLOURS[0]}"><title>{n:,} rows: {a:.3f}, {b:.3f}</title></circle>'
        )
    bottom = top + max(CHART + 20, CELL * len(shown)) + LINE
    for i, (text, colour) in enumerate(legend):
        y = top + CHART + 40 + i * LINE
        body.append(f'<rect x="{x_roc}" y="{y - 10}" width="10" height="10" fill="{colour}"/>')
        body.append(f'<text x="{x_roc + 16}" y="{y}">{escaped(text)}</text>')
        bottom = max(bottom, y + LINE)
    width = max(x_calibration + CHART + GAP, text_width(head) * 11 // 10 + 2 * PAD)
    title = f"Validation of predictions of {v.target[:200]}"
    return Drawing(picture(body, width, bottom, title), width, bottom, title)


def draw_number_validation(validation: NumberValidation) -> Drawing:
    """Draw a `jtgpu.learn.NumberValidation`."""
    v, top, left = validation, TITLE + LINE + 30, PAD + 20
    what = f"Prediction of {v.target}: root mean square error {v.rmse:.4g}, R-squared {v.r_squared:.4g}"
    body = [f'<text class="h" x="{PAD}" y="16">{escaped(shortened(what, 900))}</text>']
    both = np.concatenate([v.mean, v.observed])
    low, width = float(both.min()), float(np.ptp(both)) or 1.0
    title = f"Observed (up) and predicted (across), {low:.4g} to {low + width:.4g}"
    body += _frame(left, top, title, "predicted", "observed")
    some = np.linspace(0, len(v.mean) - 1, min(len(v.mean), MAX_POINTS)).astype(np.int64)
    for x, y in zip((v.mean[some] - low) / width, (v.observed[some] - low) / width, strict=True):
        at = f'cx="{left + CHART * x:.1f}" cy="{top + CHART * (1 - y):.1f}"'
        body.append(f'<circle {at} r="2" fill="{COLOURS[0]}" fill-opacity="0.6"/>')
    levels = np.linspace(0, 1, 41)
    right = left + max(CHART, text_width(title)) + 2 * GAP
    body += _frame(right, top, "Calibration of intervals", "probability", "share of values inside")
    body.append(_line(levels, np.array([v.coverage(x) for x in levels]), right, top, COLOURS[0]))
    name = f"Validation of predictions of {v.target[:200]}"
    size = right + CHART + GAP, top + CHART + 20 + LINE
    return Drawing(picture(body, *size, name), *size, name)


def _matrix(v: Validation, shown: Sequence[int], names: Sequence[str], x: int, y: int) -> list[str]:
    """Counts by the state that occurs (rows) and the predicted one (columns)."""
    body = [f'<text class="s" x="{x}" y="{y - 24}">rows: observed, columns: predicted</text>']
    confusion = v.confusion
    for i, (k, name) in enumerate(zip(shown, names, strict=True)):
        total = max(int(confusion[k].sum()), 1)
        body.append(f'<text class="r" x="{x - 6}" y="{y + i * CELL + CELL // 2 + 4}">{escaped(name)}</text>')
        column = escaped(shortened(v.states[k], CELL - 4))
        body.append(f'<text x="{x + i * CELL + 2}" y="{y - 6}">{column}</text>')
        for j, other in enumerate(shown):
            n = int(confusion[k, other])
            tip = escaped(f"{v.states[k]} predicted as {v.states[other]}: {n:,} of {total:,}")
            colour = "v" if k == other else "b"
            body.append(
                f'<rect class="{colour}" x="{x + j * CELL}" y="{y + i * CELL}" width="{CELL - 2}" height="{CELL - 2}" '
                f'fill-opacity="{0.08 + 0.62 * n / total:.2f}"><title>{tip}</title></rect>'
            )
            count = shortened(f"{n:,}", MAX_CELL_TEXT)
            left = x + j * CELL + (CELL - text_width(count)) // 2
            body.append(f'<text x="{left}" y="{y + i * CELL + CELL // 2 + 4}">{count}</text>')
    return body


def _frame(x: int, y: int, title: str, across: str, up: str) -> list[str]:
    """A unit square with its diagonal."""
    return [
        f'<text x="{x}" y="{y - 24}">{escaped(title)}</text>',
        f'<path class="a" d="M{x} {y}V{y + CHART}H{x + CHART}"/>',
        f'<path class="k" d="M{x} {y + CHART}L{x + CHART} {y}" stroke-dasharray="3 4"/>',
        f'<text class="s" x="{x}" y="{y - 6}">1, {escaped(up)}</text>',
        f'<text class="s" x="{x}" y="{y + CHART + 16}">0</text>',
        f'<text class="s r" x="{x + CHART}" y="{y + CHART + 16}">{escaped(across)} 1</text>',
    ]


def _line(across: np.ndarray, up: np.ndarray, x: int, y: int, colour: str) -> str:
    some = np.unique(np.linspace(0, len(across) - 1, min(len(across), MAX_POINTS)).astype(np.int64))
    points = " ".join(f"{x + CHART * across[i]:.1f},{y + CHART * (1 - up[i]):.1f}" for i in some)
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
