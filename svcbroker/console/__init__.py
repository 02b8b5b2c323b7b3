"""
The console: a page for the people who run a broker and write programs for it.

The page is static files: C{page}, and C{vendor} with what others have written. It makes the same
calls as every other client, by the account that has logged in.
"""

from ._console import FEATURE

__all__ = ["FEATURE"]
