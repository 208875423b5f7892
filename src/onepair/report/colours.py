"""The colours of charts and pages: what a chart is drawn in, and the names that a page gives them.

A chart inside a page takes its colours from the page, which has others for dark screens.
"""

PAPER, INK, MUTED, RULE = "#ffffff", "#1d2530", "#5b6470", "#d9dce1"
# Of runs. Every colour has a contrast of at least 4.5 : 1 on white. The first, for the baseline, is grey.
RUNS = ("#6b7280", "#0067a8", "#c24a00", "#00785a", "#8a3f8f", "#7a5b00")
CEILING = INK

_NAMES = {PAPER: "paper", INK: "ink", MUTED: "muted", RULE: "rule"} | {
    colour: f"run{number}" for number, colour in enumerate(RUNS)
}


def on_a_page(style: str) -> str:
    """A style or a colour with the names that a page gives to our colours.

    >>> on_a_page("fill: #1d2530; stroke: #0067a8")
    'fill: var(--ink); stroke: var(--run1)'
    """
    for colour, name in _NAMES.items():
        style = style.replace(colour, f"var(--{name})")
    return style
