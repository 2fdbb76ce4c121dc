"""Tables of cases: data frames, CSV and Parquet files in, posteriors out.

`query` resolves the options of all functions for a model, `solver` answers the cases, and `answer_table` converts the
answers to an Arrow table. `files` and `pipeline` answer files of any size; `jtgpu.columns` reads tables of every kind.
"""

from __future__ import annotations

from ..columns import is_frame
from ..inference.planning import FrameOptions
from ..util.cells import NA_VALUES
from .files import Report, answer_file, answer_frame, frame_states

__all__ = ["NA_VALUES", "FrameOptions", "Report", "answer_file", "answer_frame", "frame_states", "is_frame"]
