"""
Tests for L{svcbroker.proofs.tlog}.
"""
