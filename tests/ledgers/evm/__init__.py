"""
Tests of the ledger on an EVM chain.
"""
