"""Tells the broker of the journal ledger."""

from journal_ledger import JournalFactory

journal = JournalFactory()
