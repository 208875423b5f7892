"""The report: what a set of runs found out, on one self-contained page."""

from onepair.report.comparison import ReportError, RunSummary, gap_closed
from onepair.report.examples import Examples
from onepair.report.page import write_report

__all__ = ["Examples", "ReportError", "RunSummary", "gap_closed", "write_report"]
