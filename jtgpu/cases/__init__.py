"""Tables of cases: data frames, CSV and Parquet files in, posteriors out.

`options` has the options of everything here, `query` resolves them for a model; `states` and `encoder` turn cells into
state numbers, `solver` answers these, `answer_table` makes an Arrow table of the answers. `frames` and `native_frame`
connect them to data frames; `reading`, `pipeline`, `writing` and `files` to files of any size.
"""

from __future__ import annotations

from .files import Report, answer_file
from .frames import FrameOptions, answer_frame, frame_states, is_frame
from .options import MISSING

__all__ = ["MISSING", "FrameOptions", "Report", "answer_file", "answer_frame", "frame_states", "is_frame"]
