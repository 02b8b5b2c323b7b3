"""
Generators of the test vectors in C{docs/vectors}, and the chains that they and tests are made of.

C{python -m tools.vectors.chain} and C{python -m tools.vectors.proofs} write them.
"""
