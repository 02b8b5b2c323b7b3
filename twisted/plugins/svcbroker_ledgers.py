"""
The ledgers that come with svcbroker. Their code is imported when one of them is chosen.
"""

from svcbroker.ledgers import LedgerPlugin

cometbft = LedgerPlugin("cometbft", "svcbroker.ledgers.cometbft")
copy = LedgerPlugin("copy", "svcbroker.ledgers.copy")
evm = LedgerPlugin("evm", "svcbroker.ledgers.evm")
memory = LedgerPlugin("memory", "svcbroker.ledgers.memory")
pbft = LedgerPlugin("pbft", "svcbroker.ledgers.pbft")
