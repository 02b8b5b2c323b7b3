"""
Addresses as people and the interface write them.
"""

from __future__ import annotations

from ipaddress import IPv6Address as IPv6
from ipaddress import ip_address, ip_network
from sys import intern
from typing import Final

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress

_IPV6_PREFIX: Final = 64


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


def ownerOf(peer: str) -> str:
    """
    The owner of what a client makes: the host of its L{peerText}. Of an IPv6 address it is the
    network of 64 bits, because one client may have every address of that.
    """
    return networkOf(peer.rpartition(":")[0]) or peer


def ownerKey(account: str, peer: str) -> str:
    """
    The owner of something that is bounded for each account, and for each address of clients
    without one.

    @param account: the account's name; empty where there is none.
    @param peer: the client's address, as L{peerText} gives it.
    """
    return storedKey(account, "" if account else ownerOf(peer))


def storedKey(account: str, address: str) -> str:
    """
    The key of a stored owner, as L{ownerKey} makes it. Each connection keeps it several times, so
    it is one object for all of them while anybody has it.

    @param address: the client's address, as L{ownerOf} gives it.
    """
    return intern(f"account {account}" if account else f"address {address}")


def accountOf(owner: str) -> str:
    """The name of the account in what L{ownerKey} gives; empty where there is none."""
    return owner.removeprefix("account ") if owner.startswith("account ") else ""


def networkOf(host: str) -> str:
    """
    The addresses that one client may have: an IPv4 address, or the network of an IPv6 address. What
    is no address stays as it is.
    """
    if ":" not in host:
        return host
    try:
        address = IPv6(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, _IPV6_PREFIX), strict=False))


def isLoopback(host: str) -> bool:
    """True if an address, or a name that never means another machine, is this machine."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _hostAndPort(address: IAddress) -> str:
    if isinstance(address, IPv4Address):
        return f"{address.host}:{address.port}"
    if isinstance(address, IPv6Address):
        return f"[{address.host}]:{address.port}"
    return ""
