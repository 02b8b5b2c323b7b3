"""
Tests for L{svcbroker.proofs.bundle}.
"""
