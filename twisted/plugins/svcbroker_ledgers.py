"""
The ledgers that come with svcbroker. Their code is imported when one of them is chosen.
"""

from svcbroker.ledgers import LedgerPlugin

memory = LedgerPlugin("memory", "svcbroker.ledgers.memory")
pbft = LedgerPlugin("pbft", "svcbroker.ledgers.pbft")
