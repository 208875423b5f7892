"""Finding labels: those that are probably missing, and those that are probably wrong."""

from onepair.finding.by_blocks import BlockFinding, find_by_blocks
from onepair.finding.filter import likely, thresholds
from onepair.finding.rank import rank
from onepair.finding.suggestions import Suggestions
from onepair.finding.summary import ClassSummary, summarise

__all__ = ["BlockFinding", "ClassSummary", "Suggestions", "find_by_blocks", "likely", "rank", "summarise", "thresholds"]
