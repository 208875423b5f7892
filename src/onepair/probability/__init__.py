"""Probability: what was observed and how, what scores mean, how many labels are missing, and what to predict."""

from onepair.probability.decisions import Decisions, fit_decisions

__all__ = ["Decisions", "fit_decisions"]
