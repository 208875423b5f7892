"""How figures look, and the files they become."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure

from onepair.report.colours import INK, MUTED, RULE

WIDTH, HEIGHT = 3.5, 2.6  # inches of a panel: the column of a paper
# Told apart by lightness, dashes and markers as well: for grey print and every kind of colour blindness.
LOOKS: Sequence[dict[str, Any]] = (
    {"color": "#7b828c", "linestyle": "-", "marker": "o"},
    {"color": "#0067a8", "linestyle": "--", "marker": "s"},
    {"color": "#c24a00", "linestyle": "-.", "marker": "D"},
    {"color": "#00785a", "linestyle": ":", "marker": "^"},
    {"color": "#8d4a9e", "linestyle": "-", "marker": "v"},
    {"color": "#a8791c", "linestyle": "--", "marker": "P"},
    {"color": "#1c2733", "linestyle": "-.", "marker": "X"},
)
FILLS = ("#b9bfc8", "#0067a8", "#e08a4f", "#00785a")  # of bars
SYMBOLS = {"alpha": r"$\tilde{\alpha}$", "beta": r"$\tilde{\beta}$", "high_rank_weight": r"$\lambda$"}

_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "font.size": 9,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "mathtext.default": "regular",
    "savefig.dpi": 300,
    "svg.hashsalt": "onepair",
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 8,
}


class Drawing(NamedTuple):
    """A figure, the numbers in it, what they say, and perhaps a table of them in Markdown."""

    figure: Figure
    numbers: Sequence[Mapping[str, Any]]
    findings: Sequence[str]
    table: str = ""


class Files(NamedTuple):
    """A figure as the contents of files."""

    png: bytes
    svg: bytes  # letters are shapes, so it looks the same everywhere
    page: bytes  # an SVG whose letters are text, for use inside a page


def draw(picture: Callable[[], Drawing]) -> tuple[Drawing, Files]:
    """Draw in our style, whatever the user's own settings are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        drawing = picture()
        png, svg = _save(drawing.figure, "png"), _save(drawing.figure, "svg")
        matplotlib.rcParams["svg.fonttype"] = "none"
        return drawing, Files(png, svg, _save(drawing.figure, "svg"))


def _save(figure: Figure, format: str) -> bytes:
    content = io.BytesIO()
    changing = ["Software"] if format == "png" else ["Creator", "Date", "Format", "Type"]
    figure.savefig(content, format=format, metadata=dict.fromkeys(changing))
    return content.getvalue()
