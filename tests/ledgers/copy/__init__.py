"""
Tests for L{svcbroker.ledgers.copy}.
"""
