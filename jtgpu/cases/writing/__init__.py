"""Files of answers: their formats, and files that appear complete and can be resumed."""

from __future__ import annotations

from .formats import Writer, writer_for
from .resumable import NO_SPACE, ResumableFile, no_space

__all__ = ["NO_SPACE", "ResumableFile", "Writer", "no_space", "writer_for"]
