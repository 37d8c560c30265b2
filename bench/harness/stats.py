"""Arithmetic: medians with their spread, quantiles, ratios."""

import math
import statistics


class Figures:
    """What the rounds of one workload of one system gave."""

    def __init__(self, values):
        self.values = sorted(values)
        if not self.values:
            raise ValueError("no rounds, no figure")

    @property
    def median(self):
        return statistics.median(self.values)

    @property
    def least(self):
        return self.values[0]

    @property
    def most(self):
        return self.values[-1]

    @property
    def spread(self):
        """Of the extremes, as a share of the median."""
        return (self.most - self.least) / self.median if self.median else math.inf


def quantile(values, share):
    """The value below which a share of all lies, as it was measured: nothing between two values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values, no quantile")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def ratio(ours, theirs):
    """How many times theirs ours is; None where there is nothing to divide by."""
    return ours / theirs if theirs else None
