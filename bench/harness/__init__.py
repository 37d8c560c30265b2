"""The side-by-side benchmark: everything behind bench/run and bench/steps.

Nothing here measures anything itself but the physical references: each system measures itself, by
commands that mean the same for all of them, and this package decides the order, checks the counts,
and reports. It needs nothing but Python.
"""
