"""``jtgpu warmup``: compile everything that the first query would compile."""

from __future__ import annotations

from ..util.warmup import compile_loops
from .console import command, format_seconds, print_json, status
from .options import Json

__all__ = ["warmup"]


@command
def warmup(*, json: Json = False) -> None:
    """Compile the loops of the CPU backend before the first query, for container images.

    A wheel for this Python and processor has them already; then nothing is done. Otherwise they are compiled on all
    cores, in a minute or two, and cached in JTGPU_CACHE_DIR, the package's folder or the user's cache folder. Run it as
    the user, on the kind of processor, and with the variables that the image will run with.
    """
    with status("compiling") as now:
        done = compile_loops(now)
    if json:
        print_json(done._asdict())
    elif not done.reason:
        print(f"Nothing to do: the loops are part of this installation ({done.place}).")
    elif done.compiled:
        print(f"Compiled {done.compiled} loops in {format_seconds(done.seconds)}; cached in {done.place}.")
    else:
        print(f"Nothing to do: all loops are cached in {done.place}.")
