"""
The carriers: each turns one wire protocol into calls of the broker.
"""
