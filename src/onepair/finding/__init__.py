"""Finding labels: those that are probably missing, and those that are probably wrong."""

from onepair.finding.filter import likely, thresholds
from onepair.finding.rank import rank
from onepair.finding.suggestions import Suggestions
from onepair.finding.summary import ClassSummary, summarise

__all__ = ["ClassSummary", "Suggestions", "likely", "rank", "summarise", "thresholds"]
