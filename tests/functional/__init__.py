"""
Tests of the real daemon, as a process of its own, from outside.
"""
