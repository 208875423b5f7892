"""The report: what a set of runs found out, on one self-contained page."""

from onepair.report.examples import Examples
from onepair.report.page import write_report
from onepair.report.side_by_side import ReportError, RunSummary, gap_closed

__all__ = ["Examples", "ReportError", "RunSummary", "gap_closed", "write_report"]
