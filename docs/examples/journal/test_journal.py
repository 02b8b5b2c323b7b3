"""The contract of a ledger, on the journal."""

from journal_ledger import JournalFactory

from svcbroker.testing import ClockFixture, makeLedgerTests


def onClock(test):
    return ClockFixture(JournalFactory().configure({}), isDurable=True)


class JournalLedgerTests(makeLedgerTests(onClock)):
    pass
