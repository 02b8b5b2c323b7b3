"""
SCITT: a transparency service (RFC 9943) over HTTP, by SCRAPI. Statements are registered as events
of one topic, and receipts prove that they are in a tree that follows from the log.

It needs the extra C{scitt}, so only C{feature} is imported where it is not switched on.
"""
