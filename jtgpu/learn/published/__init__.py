"""The published system that samples orders of the variables (M. Trosztel, 2012), for comparison.

It computes the score of every family of a few parents before the chain starts, and stores them by their index in the
combinatorial number system. A move exchanges two variables of an order; only the variables between them are summed
again. `jtgpu.learn.posterior` is the current method.
"""

from .filling import OrderSamples, sample_orders, score_cache
from .score_cache import ScoreCache, published_seconds, table_bytes

__all__ = ["OrderSamples", "ScoreCache", "published_seconds", "sample_orders", "score_cache", "table_bytes"]
