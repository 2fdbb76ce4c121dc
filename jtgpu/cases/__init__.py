"""Tables of cases: data frames, CSV and Parquet files in, posteriors out.

What each module knows: `encode` cells and states; `solve` a question and a tree, which is all that a worker needs;
`frames` the libraries of data frames; `stream` files of cases in chunks; `output` and `footer` files of answers that
are complete or absent; `pipeline` how a file goes through all of these.
"""

from __future__ import annotations

from .encode import MISSING
from .frames import FrameOptions, answer_frame, frame_states, is_frame
from .pipeline import Report, answer_file

__all__ = ["MISSING", "FrameOptions", "Report", "answer_file", "answer_frame", "frame_states", "is_frame"]
