"""
How fast the broker is, measured on the real daemon. See README.md beside this file.
"""
