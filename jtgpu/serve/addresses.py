"""Addresses: which of them other machines reach, and how a browser writes them."""

from __future__ import annotations

import ipaddress
import socket


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def own_addresses() -> list[str]:
    """Addresses of this machine that clients may use as host."""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return []
    return sorted(f"[{a}]" if ":" in a else a for a in found)


def url_of(host: str, port: int, token: str = "") -> str:
    """The address for a browser; the token is in the fragment, which is never sent."""
    name = "127.0.0.1" if host in ("0.0.0.0", "") else "[::1]" if host == "::" else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/{f'#token={token}' if token else ''}"
