"""The report: what a set of runs found out, on one self-contained page."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onepair.report.examples import Examples
    from onepair.report.page import write_report
    from onepair.report.side_by_side import ReportError, RunSummary, gap_closed

__all__ = ["Examples", "ReportError", "RunSummary", "gap_closed", "write_report"]

# Imported when they are first used: the room's plain words need neither a chart nor a template.
_HOMES = {"Examples": "examples", "write_report": "page"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'onepair.report' has no attribute {name!r}")
    return getattr(import_module(f"onepair.report.{_HOMES.get(name, 'side_by_side')}"), name)
