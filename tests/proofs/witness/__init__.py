"""
Tests for L{svcbroker.proofs.witness}.
"""
