"""Tables of cases: data frames, CSV and Parquet files in, posteriors out.

`options` defines the options of all functions, and `query` resolves them for a model. `states` and `encoder` convert
cells to state numbers, `solver` answers the cases, and `answer_table` converts the answers to an Arrow table. `frames`
and `native_frame` support data frames; `reading`, `pipeline`, `writing` and `files` support files of any size.
"""

from __future__ import annotations

from ..columns import is_frame
from ..inference.planning import FrameOptions
from ..util.cells import NA_VALUES
from .files import Report, answer_file, answer_frame, frame_states

__all__ = ["NA_VALUES", "FrameOptions", "Report", "answer_file", "answer_frame", "frame_states", "is_frame"]
