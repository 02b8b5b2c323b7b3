"""
Tests for L{svcbroker.net.addresses}.
"""

from __future__ import annotations

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.net.addresses import ownerOf, peerText


class OwnerTests(SynchronousTestCase):
    """
    The owner of a client's connections.
    """

    def test_ownerIsTheHostOfTheClient(self) -> None:
        """Its port is left out; of IPv6 the network counts, of which one client has all."""
        for address, owner in (
            (IPv4Address("TCP", "10.0.0.1", 5000), "10.0.0.1"),
            (IPv6Address("TCP", "2001:db8:1:2:3:4:5:6", 5000), "2001:db8:1:2::/64"),
            (IPv6Address("TCP", "2001:db8:1:2::7", 80), "2001:db8:1:2::/64"),
            (IPv6Address("TCP", "fe80::1%eth0", 80), "fe80::/64"),
            (IPv6Address("TCP", "::ffff:10.0.0.1", 80), "10.0.0.1"),
            (UNIXAddress("/run/x"), "unix"),
        ):
            self.assertEqual(ownerOf(peerText(address)), owner)

    def test_otherNamesAreTheirHost(self) -> None:
        self.assertEqual(ownerOf("receiver.example:8080"), "receiver.example")
        self.assertEqual(ownerOf(""), "")
