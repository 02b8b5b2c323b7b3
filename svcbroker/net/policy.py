"""
The addresses that may be connected to for clients who name a host.

The tables are IANA's registries of special-purpose addresses. They are spelled out here since
C{ipaddress.is_global} has changed its mind between releases of Python, and lets addresses
through that lead inside: the wire server of a cloud, or IPv6 forms with an IPv4 address in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, Self, TypeAlias

from attrs import frozen

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

REFUSED_4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host: on many systems the same as loopback
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers; some clouds keep their metadata here
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # public by its number, yet inside of every machine on Azure
        "169.254.0.0/16",  # link-local: most clouds keep their metadata here
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)

PUBLIC_6: Final = IPv6Network("2000::/3")
"""All that is handed out so far. Whatever lies outside is refused: loopback, unspecified,
link-local, unique local, site-local, multicast, discard-only, segment routing, IPv4-compatible
(C{::/96}), IPv4-translated (C{::ffff:0:0:0/96}), local NAT64 (C{64:ff9b:1::/48})."""

REFUSED_6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, benchmarking, AMT, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: leads to the IPv4 address in it
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # the 6bone, given back
        "3fff::/20",  # documentation
    )
)

MAPPED: Final = IPv6Network("::ffff:0:0/96")
NAT64: Final = IPv6Network("64:ff9b::/96")
"""Where there is only IPv6, every IPv4 address looks like this one. It leads to the IPv4 address
in it, which is the one to judge."""

WEB_PORTS: Final = frozenset({80, 443})
FIRST_UNPRIVILEGED_PORT: Final = 1024

_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})

_LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*", re.ASCII)
_MAX_NAME = 253


def parseAddress(text: str) -> Address | None:
    """
    An address in its usual form; C{None} for anything else, also for the forms that only
    C{inet_aton} knows. A zone is left out: it does not make an address another one.
    """
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def isHostName(text: str) -> bool:
    """
    Whether a text is a name, and by no resolver's reading an address: C{127.1}, C{0x7f.1} and
    C{2130706433} are none.
    """
    if len(text) > _MAX_NAME or _NAME.fullmatch(text) is None:
        return False
    return _NUMBER.fullmatch(text.rpartition(".")[2]) is None


def normaliseHost(text: str) -> str:
    """A host as it is compared: in lower case, without the dot of the root."""
    return text.lower().removesuffix(".")


def unwrapped(address: Address) -> Address:
    """The address that is meant: an IPv4 address for one that IPv6 is only the envelope of."""
    if isinstance(address, IPv6Address) and (address in MAPPED or address in NAT64):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def isPublic(address: Address) -> bool:
    """
    Whether an address leads out into the Internet, as far as its number can tell.
    """
    meant = unwrapped(address)
    if isinstance(meant, IPv4Address):
        return not any(meant in network for network in REFUSED_4)
    # Not the zone: a network does not hold an address that has one, in some releases of Python.
    meant = IPv6Address(int(meant))
    if meant not in PUBLIC_6 or any(meant in network for network in REFUSED_6):
        return False
    # An ISATAP interface leads to the IPv4 address in it.
    return (int(meant) >> 32) & 0xFFFFFFFF not in _ISATAP


def isOpenPort(port: int) -> bool:
    """Whether a port is one of the web's, or needs no privileges to listen on."""
    return port in WEB_PORTS or port >= FIRST_UNPRIVILEGED_PORT


def _holds(network: Network, address: Address) -> bool:
    return network.version == address.version and (
        int(address) & int(network.netmask) == int(network.network_address)
    )


@frozen
class AddressPolicy:
    """
    Which targets are permitted: the web's ports and those that need no privileges of public
    addresses, and what the operator allows beside them. Services on other privileged ports (mail,
    SSH) do not expect requests that a stranger has composed.

    @ivar networks: networks whose addresses are allowed, at all ports.
    @ivar hosts: names that are allowed, whatever they resolve to, at all ports.
    """

    networks: tuple[Network, ...] = ()
    hosts: frozenset[str] = frozenset()

    @classmethod
    def allowing(cls, allowed: Iterable[str]) -> Self:
        """
        A policy that allows these networks, addresses and host names.

        @raise ValueError: one of them is none of the three. The text goes after its name.
        """
        networks: list[Network] = []
        hosts = set()
        for text in allowed:
            what = parseAllowed(text)
            if isinstance(what, str):
                hosts.add(what)
            else:
                networks.append(what)
        return cls(tuple(networks), frozenset(hosts))

    def permits(self, host: str, address: str, port: int) -> bool:
        """
        Whether events may be sent to an address.

        @param host: the host that the URL names: a name, or the address itself.
        @param address: the address that is connected to.
        @param port: the port of it.
        """
        parsed = parseAddress(address)
        if parsed is None:
            return False
        if normaliseHost(host) in self.hosts or (isOpenPort(port) and isPublic(parsed)):
            return True
        meant = unwrapped(parsed)
        return any(_holds(each, parsed) or _holds(each, meant) for each in self.networks)


def parseAllowed(text: str) -> Network | str:
    """
    What an operator allows: a network, an address as the smallest network, or a host's name in
    its normal form.

    @raise ValueError: it is none of the three. The text goes after its name.
    """
    try:
        return ip_network(text)
    except ValueError:
        name = normaliseHost(text)
    if not isHostName(name):
        raise ValueError(f"is neither a network such as 10.1.0.0/16 nor a host's name: {text!r}")
    return name
