"""Networks with numbers whose discrete part is on a GPU: the test of the emulated one, on the real one."""

from tests.mixed.test_gpu import test_the_discrete_part_is_on_the_gpu

__all__ = ["test_the_discrete_part_is_on_the_gpu"]
