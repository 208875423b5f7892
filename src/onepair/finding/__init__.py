"""Finding labels: those that are probably missing, and those that are probably wrong."""

from onepair.finding.search import BlockFinding, find_by_blocks
from onepair.finding.suggestions import ClassSummary, Suggestions, rank, summarise

__all__ = ["BlockFinding", "ClassSummary", "Suggestions", "find_by_blocks", "rank", "summarise"]
