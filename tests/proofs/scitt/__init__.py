"""
Tests for L{svcbroker.proofs.scitt}.
"""
