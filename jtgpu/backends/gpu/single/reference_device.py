"""The GPU that the engines' time models were fitted on: an NVIDIA H100 SXM5."""

from __future__ import annotations

REFERENCE_SMS = 132  # its streaming multiprocessors: shares of a whole GPU are scaled by those of the GPU in use
