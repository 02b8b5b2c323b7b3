"""
The distributed ledger: an application that CometBFT replicates, beside an engine of its own.
"""
