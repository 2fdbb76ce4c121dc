"""``jtgpu warmup``: compile everything that the first query would compile."""

from __future__ import annotations

from ..util.warmup import compile_loops
from .console import command, format_seconds, print_json
from .options import Json, Progress
from .tables import status

EXAMPLES = ("jtgpu warmup",)


@command
def warmup(*, progress: Progress = None, json: Json = False) -> None:
    """Compile the loops of the CPU backend before the first query, for container images.

    A wheel for this Python and processor contains them, and nothing is done. Otherwise they are compiled on all cores,
    in a minute or two, and cached in JTGPU_CACHE_DIR, the package's folder or the user's cache folder. Run it on the
    kind of processor, and with the environment variables, that later processes have.
    """
    with status("compiling", progress) as now:
        done = compile_loops(now)
    if json:
        print_json(done._asdict())
    elif not done.reason:
        print(f"Nothing to do: the loops are part of this installation ({done.place}).")
    elif done.compiled:
        print(f"Compiled {done.compiled} loops in {format_seconds(done.seconds)}; cached in {done.place}.")
        print(f"The extension module is not used: {done.reason}.")
    else:
        print(f"Nothing to do: all loops are cached in {done.place}.")
