"""
Addresses as people and the interface write them.
"""

from __future__ import annotations

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress


def addressText(address: IAddress) -> str:
    """
    An address that is listened on: C{host:port}, C{[host]:port} for IPv6, C{unix:path}.
    """
    if isinstance(address, UNIXAddress) and address.name is not None:
        return "unix:" + address.name.decode("utf-8", "backslashreplace")
    return _hostAndPort(address) or str(address)


def peerText(address: IAddress) -> str:
    """
    A client's address: C{host:port}, C{[host]:port} for IPv6, C{unix} for all others.
    """
    return _hostAndPort(address) or "unix"


def _hostAndPort(address: IAddress) -> str:
    if isinstance(address, IPv4Address):
        return f"{address.host}:{address.port}"
    if isinstance(address, IPv6Address):
        return f"[{address.host}]:{address.port}"
    return ""
