"""Probability: what was observed and how, what scores mean, how many labels are missing, and what to predict."""

from onepair.probability.decisions import Decisions, fit_decisions
from onepair.probability.observation import recognise
from onepair.probability.priors import class_priors

__all__ = ["Decisions", "class_priors", "fit_decisions", "recognise"]
