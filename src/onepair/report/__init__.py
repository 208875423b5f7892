"""The report: what a set of runs found out, on one self-contained page."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onepair.errors import ReportError
    from onepair.report.compared_runs import RunSummary, gap_closed
    from onepair.report.explain_images import Examples
    from onepair.report.page import write_report

__all__ = ["Examples", "ReportError", "RunSummary", "gap_closed", "write_report"]

# Imported when they are first used: the room's plain words need neither a chart nor a template.
_HOMES = {"Examples": "explain_images", "write_report": "page"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'onepair.report' has no attribute {name!r}")
    return getattr(import_module(f"onepair.report.{_HOMES.get(name, 'compared_runs')}"), name)
