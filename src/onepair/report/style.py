"""How charts look, on pages and in papers: one palette, one style, and for every method a colour of its own."""

import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

PAPER, INK, MUTED, RULE = "#ffffff", "#1d2530", "#5b6470", "#d9dce1"
# Each has a contrast of at least 4.5 : 1 on white. Markers and dashes tell them apart for the colour-blind and in grey.
PALETTE = ("#6b7280", "#0067a8", "#c24a00", "#00785a", "#8a3f8f", "#7a5b00", "#b0235f")
DARK = {  # what each becomes on a dark screen
    **{PAPER: "#14181e", INK: "#e8eaed", MUTED: "#a3abb6", RULE: "#363d47"},
    **dict(zip(PALETTE, ("#9aa3b0", "#5cb0ee", "#ff8f55", "#43c59a", "#d08ad6", "#d6b24a", "#ff8ab8"), strict=True)),
}
MARKERS = (("o", "●"), ("s", "■"), ("D", "◆"), ("^", "▲"), ("v", "▼"))
DASHES = ("-", "--", "-.", ":")
# A method's place is its colour: new ones go to the end. Those that are compared most are first, and all differ.
METHOD_ORDER = (
    *("bce", "opml", "opml-sp", "opml-plus", "entmax", "bce-known", "role"),
    *("asl", "zlpr", "hill", "opml-hr", "splc", "ll-r", "gr"),
    *("bce-ls", "p-asl", "two-way", "opml-correct", "ll-cp", "ridge", "mime"),
    *("crisp", "focal", "opml-ls", "ll-ct", "entmax-apl", "opml-soft", "bce-pw"),
    *("bce-1p-alln", "bce-dw", "bce-l1", "bce-l2", "bce-nls", "bce-pw-bound", "ll-r-boostlu"),
)


class SeriesStyle(NamedTuple):
    """How a series is drawn, the same in every chart; its shape tells apart what its colour does not."""

    colour: str
    marker: str  # as matplotlib names it
    glyph: str  # the same shape in text
    dashes: str

    @property
    def line(self) -> dict[str, Any]:
        """The options of `Axes.plot`."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.dashes}


def series_style(number: int, shape: int = 0) -> SeriesStyle:
    """Return the style of a series by its number; another shape has the same colour."""
    marker, glyph = MARKERS[(number + shape) % len(MARKERS)]
    return SeriesStyle(PALETTE[number % len(PALETTE)], marker, glyph, DASHES[(number + shape) % len(DASHES)])


def method_styles(methods: Sequence[str]) -> list[SeriesStyle]:
    """Return the style of each method of a chart: its own colour everywhere, and shapes that differ within the chart.

    >>> [style.colour for style in method_styles(["opml", "bce", "opml"])]
    ['#0067a8', '#6b7280', '#0067a8']
    """
    found: list[SeriesStyle] = []
    for method in methods:
        known = method in METHOD_ORDER
        number = METHOD_ORDER.index(method) if known else zlib.crc32(method.encode())
        shapes = (series_style(number, shape) for shape in range(len(MARKERS) * len(DASHES)))
        found.append(next((style for style in shapes if style not in found), series_style(number)))
    return found


@contextmanager
def drawing(size: float, **more: Any) -> Iterator[None]:
    """Draw with letters of a size in our style, whatever the user's own settings are."""
    import matplotlib as mpl

    style: Any = {
        "axes.axisbelow": True,
        "axes.edgecolor": RULE,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.labelcolor": MUTED,
        "axes.labelsize": "medium",
        "axes.spines.left": False,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "axes.titlesize": "medium",
        "font.size": size,
        "grid.color": RULE,
        "grid.linewidth": 0.6,
        "legend.fontsize": "small",
        "legend.frameon": False,
        "lines.linewidth": 1.6,
        "lines.markersize": 4,
        "mathtext.default": "regular",
        "svg.hashsalt": "onepair",
        "text.color": INK,
        "xtick.color": RULE,
        "xtick.labelcolor": MUTED,
        "xtick.labelsize": "small",
        "ytick.color": RULE,
        "ytick.labelcolor": MUTED,
        "ytick.labelsize": "small",
        "ytick.major.size": 0,
    }
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a browser has fonts for it
        mpl.rcdefaults()
        mpl.rcParams.update(style | more)
        yield


def for_dark_screens(svg: bytes) -> bytes:
    """Let an SVG file change its colours where the page or the system around it is dark.

    >>> b"prefers-color-scheme:dark" in for_dark_screens(b'<svg><path style="fill: #1d2530"/></svg>')
    True
    """
    rules = "".join(
        f'[style*="{what}: {light}"]{{{what}:{dark}!important}}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
        if (what, light) != ("fill", PAPER)
    )
    rules += f'path[style*="fill: {PAPER}"]{{fill:none!important}}'  # the ground; letters may be white on a colour
    style = f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>"
    start, opening, rest = svg.partition(b"<svg")
    inside = rest.index(b">") + 1
    return start + opening + rest[:inside] + style.encode() + rest[inside:]


def on_a_page(style: str) -> str:
    """A style or a colour with the names that a page gives to our colours, which has others for dark screens.

    >>> on_a_page("fill: #1d2530; stroke: #0067a8")
    'fill: var(--ink); stroke: var(--run1)'
    """
    names = {PAPER: "paper", INK: "ink", MUTED: "muted", RULE: "rule"}
    for colour, name in {**names, **{colour: f"run{number}" for number, colour in enumerate(PALETTE)}}.items():
        style = style.replace(colour, f"var(--{name})")
    return style
