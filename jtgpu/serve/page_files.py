"""The folder of the page."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "page"
