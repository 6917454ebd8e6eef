"""Queries end to end: each in Python and in SQL, run over real tables through one engine and counted."""
