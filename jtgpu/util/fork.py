"""Locks that the child of ``os.fork()`` can acquire, whatever the threads of the parent held at that moment.

Only the thread that calls ``os.fork()`` exists in the child. A lock that another thread held stays locked there, and
nobody releases it. Objects that live longer than a call therefore get their locks from `new_lock`, which are free in
every child, and objects whose state refers to threads (counts of idle threads, results that a thread computes) reset it
by `reset_in_child`. What a thread of the parent was computing is lost in the child, which computes it again.

A CUDA context does not survive a fork: GPU backends cannot be used in a child.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

T = TypeVar("T")

_locks: WeakSet[Any] = WeakSet()
_resets: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()


def new_lock() -> threading.Lock:
    """A lock that is free in the child of a fork, even if a thread holds it at that moment."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def reset_in_child(owner: T, reset: Callable[[T], object]) -> None:
    """Call ``reset(owner)`` in every child of a fork, as long as `owner` exists.

    `reset` must not refer to `owner` other than by its parameter, and needs no locks: the child has one thread.
    """
    _resets[owner] = reset


def _renew() -> None:
    for lock in _locks:
        lock._at_fork_reinit()  # as the standard library does with its own locks
    for owner, reset in list(_resets.items()):
        reset(owner)
    for lock in _compiler_locks():
        lock._at_fork_reinit()
    if sys.version_info < (3, 12):
        _renew_cached_properties()


def _compiler_locks() -> Iterator[Any]:
    """The locks of Numba and llvmlite, which a thread holds while it loads or compiles loops, if they are imported."""
    for module, owner in (("numba.core.compiler_lock", "global_compiler_lock"), ("llvmlite.binding.ffi", "lib")):
        lock = getattr(sys.modules.get(module), owner, None)
        while lock is not None and not hasattr(lock, "_at_fork_reinit"):
            lock = getattr(lock, "_lock", None)
        if lock is not None:
            yield lock


def _renew_cached_properties() -> None:
    """Up to Python 3.11, a `functools.cached_property` holds a lock while it computes the value for any object."""
    for name, module in list(sys.modules.items()):
        if not name.startswith("jtgpu.") or module is None:
            continue
        for cls in list(vars(module).values()):
            if isinstance(cls, type) and cls.__module__ == name:
                for attribute in vars(cls).values():
                    if isinstance(attribute, cached_property):
                        attribute.lock = threading.RLock()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew)
