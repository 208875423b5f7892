"""Probability: what was observed and how, what scores mean, how many labels are missing, and what to predict."""

from onepair.probability.infer import class_priors
from onepair.probability.observation import recognise
from onepair.probability.thresholds import Thresholds, fit_decisions

Decisions = Thresholds  # its former name

__all__ = ["Decisions", "Thresholds", "class_priors", "fit_decisions", "recognise"]
