"""
Tests for L{svcbroker.witness}.
"""
