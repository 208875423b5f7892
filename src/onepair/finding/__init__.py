"""Finding labels: those that are probably missing, and those that are probably wrong."""

from onepair.finding.block_find import BlockFinding, find_by_blocks
from onepair.finding.suggestions import Suggestions, likely, rank, thresholds
from onepair.finding.summary import ClassSummary, summarise

__all__ = ["BlockFinding", "ClassSummary", "Suggestions", "find_by_blocks", "likely", "rank", "summarise", "thresholds"]
