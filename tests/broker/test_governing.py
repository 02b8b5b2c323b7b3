"""
Tests of the operator call that hands in a signed change of the nodes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svcbroker.access import ANYBODY
from svcbroker.broker import Broker, Limits
from svcbroker.broker._operator import Operator
from svcbroker.chain import ValidatorChange, ValidatorSet
from svcbroker.errors import ParameterInvalid
from svcbroker.interfaces import IValidatorSetLedger
from svcbroker.operations._operatorcalls import ChangeType
from tests.broker.support import FakeDirectory, makeCalls

NODES = ValidatorSet(1, (bytes(32),))
CHANGE = ValidatorChange(following=NODES, approvals=[(0, bytes(64))], acceptances=[bytes(64)])


@implementer(IValidatorSetLedger)
class Governed:
    """A ledger whose nodes belong to several."""

    def __init__(self) -> None:
        self.changes: list[ValidatorChange] = []

    def getNodes(self) -> Deferred[ValidatorSet]:
        return succeed(NODES)

    def changeNodes(
        self, rotate: Sequence[int] = (), count: int | None = None
    ) -> Deferred[ValidatorSet]:
        return fail(ParameterInvalid("the keys are elsewhere"))

    def submitChange(self, change: ValidatorChange) -> Deferred[ValidatorSet]:
        self.changes.append(change)
        return succeed(change.following)


class SubmitTests(SynchronousTestCase):
    """
    From the call to the ledger.
    """

    def operator(self, ledger: Any) -> Operator:
        broker = Broker({"1": ledger}, Clock(), Limits(), FakeDirectory())
        return makeCalls(broker).operator

    def test_signedChangesReachTheLedger(self) -> None:
        """The ledger gets the change; the nodes can be asked, but not changed otherwise."""
        ledger = Governed()
        operator = self.operator(ledger)
        self.assertEqual(self.successResultOf(operator.submitChange(ANYBODY, None, CHANGE)), NODES)
        self.assertEqual(ledger.changes, [CHANGE])
        self.assertEqual(self.successResultOf(operator.changeNodes(ANYBODY, None)), NODES)
        self.failureResultOf(operator.changeNodes(ANYBODY, None, count=2), ParameterInvalid)

    def test_notGoverned(self) -> None:
        """A ledger that nobody shares takes none."""
        operator = self.operator(object())
        self.failureResultOf(operator.submitChange(ANYBODY, None, CHANGE), ParameterInvalid)
        self.failureResultOf(operator.changeNodes(ANYBODY, None), ParameterInvalid)

    def test_malformedChangesAreRefused(self) -> None:
        """The change comes in Base64; what is none is refused."""
        kind = ChangeType()
        text = b64encode(CHANGE.encode()).decode()
        self.assertEqual(kind.fromJSON(text).encode(), CHANGE.encode())
        for value in (1, None, "", "!", text[:-4], text + "AAAA", text + "\n"):
            self.assertRaises(ParameterInvalid, kind.fromJSON, value)
