"""Networks of clients are read and planned in a process of their own, which ends when its time or memory does.

A file of a few bytes may need hours or gigabytes, and no thread can be stopped. Run as a module, this is that process:
it reads a network from stdin and writes a plan, or why there is none, to stdout.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from ..errors import JtgpuError, TableTooLarge
from ..formats import read as read_network
from ..formats.registry import file_suffixes
from ..inference.network_plan import NetworkPlan
from ..inference.planning import plan_or_questions
from ..model.discrete import DiscreteModel
from ..util.system import free_memory
from .edited import EditedNetwork, network_of_page
from .networks import prior_of
from .requests import Refusal, kind_of
from .trees import AnyNetwork, has_plan

SHARE = 0.2  # of the free memory, for the tables of a network
OWN_MEMORY = 1 << 30  # bytes of Python and its libraries


def network_of_file(data: bytes, suffix: str, folder: str) -> AnyNetwork:
    """Read the contents of a file with this suffix, which is written to the folder."""
    # raises Refusal: If no format has the suffix.
    if f".{suffix}" not in file_suffixes():
        raise Refusal("invalid-argument", f"no network format has the suffix {suffix[:20]!r}", field="format")
    path = Path(folder) / f"network.{suffix}"
    path.write_bytes(data)
    try:
        return read_network(path)
    except TableTooLarge:
        raise
    except JtgpuError as error:  # without the name of our folder
        raise Refusal("invalid-body", str(error).replace(f"{folder}/", "")) from None


class Opening:
    """A network of a client, on its way to a plan or a tree; `cancel` ends it from any thread."""

    def __init__(self, body: bytes, suffix: str | None, seconds: float):
        self._body, self._suffix, self._seconds = body, suffix, seconds  # suffix: of a file; None: the page's JSON
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.is_cancelled = False

    def cancel(self) -> None:
        """Nobody waits for the network any more."""
        with self._lock:
            self.is_cancelled = True
            if self._process is not None:
                self._process.kill()

    def read(self) -> NetworkPlan | AnyNetwork:
        """Read and plan the network; one that has no plan of its own is compiled, and its priors are computed."""
        # raises Refusal: If the network is invalid, too large, or takes longer than the time.
        limit = int(SHARE * free_memory())
        path = os.pathsep.join(p for p in sys.path if p)
        with tempfile.TemporaryDirectory(prefix=f"jtgpu-open-{os.getpid()}-") as folder:
            with self._lock:
                if self.is_cancelled:
                    raise Refusal("timeout", "nobody waits for the network")
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path},
                )  # fmt: skip
            try:
                asked = pickle.dumps((self._body, self._suffix, folder, limit))
                out, _ = self._process.communicate(asked, timeout=self._seconds)
            except subprocess.TimeoutExpired:
                raise too_slow(self._seconds) from None
            finally:
                self._process.kill()
                self._process.communicate()
        if not out:
            raise Refusal("too-large", "reading and planning this network takes more memory than the server has for it")
        made: NetworkPlan | AnyNetwork | Refusal = pickle.loads(out)
        if isinstance(made, Refusal):
            raise made
        return made


def too_slow(seconds: float) -> Refusal:
    """The refusal of a network that takes longer."""
    return Refusal("too-slow", f"to open this network takes more than {seconds:g} s (--timeout)", limit=seconds)


def _planned(body: bytes, suffix: str | None, folder: str, limit: int) -> NetworkPlan | AnyNetwork | Refusal:
    """The plan of a network, or the network; else why there is none."""
    net: AnyNetwork
    try:
        if suffix is None:
            net = network_of_page(msgspec.json.decode(body, type=EditedNetwork))
        else:
            net = network_of_file(body, suffix, folder)
        if isinstance(net, DiscreteModel) and has_plan(net):
            return plan_or_questions(net, memory_limit=limit)
        prior_of(net.compile("cpu", memory_limit=limit))
        return net
    except Refusal as error:
        return error
    except msgspec.DecodeError as error:
        return Refusal(kind_of(error), str(error))
    except TableTooLarge as error:
        return Refusal("too-large", str(error), needed=error.needed, limit=error.limit)
    except MemoryError:
        return Refusal("too-large", "this network takes more memory than the server has for it", limit=limit)
    except JtgpuError as error:
        return Refusal("invalid-body", str(error))


def _main() -> None:
    body, suffix, folder, limit = pickle.load(sys.stdin.buffer)
    with suppress(ImportError, ValueError, OSError):
        import resource

        most = limit + OWN_MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    made = _planned(body, suffix, folder, limit)
    pickle.dump(made, sys.stdout.buffer)


if __name__ == "__main__":
    _main()
