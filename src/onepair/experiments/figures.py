"""The figures of the paper, each dataset in a panel of its own."""

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from onepair.data.images.blocks import pixels_of
from onepair.experiments.records import Dataset, Picture, Row, published_best, values_text
from onepair.experiments.study import Outcome
from onepair.inference.engine_selector import score_images
from onepair.inference.heat_maps import suggestion_maps
from onepair.labels import POSITIVE, Labels
from onepair.metrics import Floats
from onepair.report.explain_images import fitted, overlay
from onepair.report.style import MUTED, PALETTE, SeriesStyle, drawing, for_dark_screens, method_styles, series_style
from onepair.runs.finished import FinishedRun
from onepair.words import NOTHING

WIDTH, HEIGHT = 3.5, 2.6  # inches of a panel: the column of a paper
SERIES: Sequence[dict[str, Any]] = [series_style(number).line for number in range(len(PALETTE))]  # of what is no method
SYMBOLS = {"alpha": r"$\tilde{\alpha}$", "beta": r"$\tilde{\beta}$", "high_rank_weight": r"$\lambda$"}


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
    with drawing(9, **{"savefig.dpi": 300}):
        drawn = picture()
        png, svg = _save(drawn.figure, "png"), _save(drawn.figure, "svg")
        matplotlib.rcParams["svg.fonttype"] = "none"
        return drawn, Files(png, for_dark_screens(svg), _save(drawn.figure, "svg"))


def _save(figure: Figure, format: str) -> bytes:
    content = io.BytesIO()
    changing = ["Software"] if format == "png" else ["Creator", "Date", "Format", "Type"]
    figure.savefig(content, format=format, metadata=dict.fromkeys(changing))
    return content.getvalue()


Panels = Mapping[Dataset, Sequence[Outcome]]
Numbers = list[dict[str, Any]]

STANDING_OUT = ("bce", "bce-known", "entmax", "opml-plus")  # methods, in a figure of all
MOST_INSIDE = 4  # lines whose names have room among them
BINS = np.linspace(0, 1, 6)
TILDES = (0.3, 0.7)  # values of α̃ and β̃ whose gradients are shown
OTHERS = (0.0, 2.0, 4.0)  # scores of the other negative label there


def confidence(panels: Panels) -> Drawing:
    """Histogram of the confidence at the true positives of the test set, a bar per row in each bin of 0.2."""
    figure, axes = _panels(panels)
    numbers: Numbers = []
    findings = []
    for panel, (dataset, outcomes) in zip(axes, panels.items(), strict=True):
        labels = outcomes[0].runs[0].labels("test")
        width, timid = 0.17 / len(outcomes), []
        for place, (outcome, style) in enumerate(zip(outcomes, _styles(outcomes), strict=True)):
            counts = np.mean([confidence_counts(run.scores("test"), labels) for run in outcome.runs], axis=0)
            shares = counts / counts.sum()
            bars = panel.bar(
                BINS[:-1] + 0.015 + place * width,
                counts,
                width,
                align="edge",
                color=style.colour,
                edgecolor="white",
                label=outcome.line.row.title,
            )
            panel.bar_label(bars, [f"{100 * share:.0f}%" for share in shares], fontsize=6, padding=1.5)
            timid.append(f"{100 * shares[:2].sum():.0f} % with {outcome.line.row.title}")
            numbers += [
                {**_line(outcome), "from": low, "to": high, "labels": round(count, 1), "share": round(share, 4)}
                for low, high, count, share in zip(
                    BINS[:-1].round(1).tolist(),
                    BINS[1:].round(1).tolist(),
                    counts.tolist(),
                    shares.tolist(),
                    strict=True,
                )
            ]
        panel.set_xticks(BINS)
        panel.margins(y=0.1)
        panel.set_xlabel("Predicted confidence")
        panel.set_ylabel("True positive labels")
        panel.legend()
        findings.append(f"{dataset.title}: a confidence below 0.4 at {' and '.join(timid)} of the true positives.")
    return Drawing(figure, numbers, findings)


def _styles(outcomes: Sequence[Outcome]) -> list[SeriesStyle]:
    return method_styles([outcome.line.row.method for outcome in outcomes])


def confidence_counts(scores: NDArray[Any], labels: Labels) -> Floats:
    """How many of the positive labels have a confidence in [0, 0.2), [0.2, 0.4), … [0.8, 1]."""
    counts, _ = np.histogram(_sigmoid(scores[labels == POSITIVE].astype(np.float64)), bins=BINS)
    return counts.astype(np.float64)


def epochs(panels: Panels) -> Drawing:
    """Validation mAP over the epochs of the last stage, a line per row, with a band of one standard deviation."""
    crowded = max(map(len, panels.values())) > MOST_INSIDE
    figure, axes = _panels(panels, width=1.5 * WIDTH if crowded else WIDTH)
    numbers: Numbers = []
    findings = []
    for panel, (dataset, outcomes) in zip(axes, panels.items(), strict=True):
        falls = []
        low = math.inf
        for place, (outcome, style) in enumerate(zip(outcomes, _styles(outcomes), strict=True)):
            label, curves = outcome.line.row.label, 100 * np.array([_validation_maps(run) for run in outcome.runs])
            mean, std = curves.mean(axis=0), curves.std(axis=0, ddof=1 if len(curves) > 1 else 0)
            numbered = np.arange(1, len(mean) + 1)
            step = max(1, len(mean) // 8)
            panel.fill_between(numbered, mean - std, mean + std, color=style.colour, alpha=0.18, linewidth=0)
            panel.plot(numbered, mean, **style.line, markevery=(place * step // 3 % step, step), label=label)
            low = min(low, (mean - std)[len(mean) // 8 :].min())
            falls.append(f"{label} {mean.max():.1f} in epoch {mean.argmax() + 1}, {mean[-1]:.1f} at the end")
            numbers += [
                {**_line(outcome), "epoch": epoch, "validation_map": round(value, 3), "std": round(deviation, 3)}
                for epoch, value, deviation in zip(numbered.tolist(), mean.tolist(), std.tolist(), strict=True)
            ]
        panel.set_xlabel("Epoch")
        panel.set_ylabel("Validation mAP (%)")
        panel.set_xlim(1, len(mean) + 0.3)
        panel.set_ylim(bottom=low - 0.05 * (panel.get_ylim()[1] - low))  # the steep beginning would flatten the rest
        panel.legend(**({"loc": "center left", "bbox_to_anchor": (1, 0.5)} if crowded else {}))
        findings.append(f"{dataset.title}, at best and at the end: {'; '.join(falls)}.")
    return Drawing(figure, numbers, findings)


def _validation_maps(run: FinishedRun) -> list[float]:
    """Of every epoch of the last stage."""
    last = run.config.last_stage
    return [record["validation_map"] for record in run.history if record["stage"] == last]


def grid(panels: Panels) -> Drawing:
    """Test mAP over two values, a field for each pair with its number, the best one framed."""
    figure, axes = _panels(panels, height=3.1)
    numbers: Numbers = []
    findings = []
    for panel, (dataset, outcomes) in zip(axes, panels.items(), strict=True):
        across, up = outcomes[0].swept
        columns, rows = (sorted({outcome.swept[name] for outcome in outcomes}) for name in (across, up))
        field = np.full((len(rows), len(columns)), math.nan)
        for outcome in outcomes:
            field[rows.index(outcome.swept[up]), columns.index(outcome.swept[across])] = np.mean(outcome.test_maps)
        shown = panel.imshow(field, origin="lower", cmap="cividis", aspect="auto")
        middle = (np.nanmin(field) + np.nanmax(field)) / 2
        for (row, column), value in np.ndenumerate(field):
            colour, text = "white" if value < middle else "black", NOTHING if math.isnan(value) else f"{value:.1f}"
            panel.text(column, row, text, ha="center", va="center", fontsize=6, color=colour)
        best = np.unravel_index(np.nanargmax(field), field.shape)
        panel.add_patch(Rectangle((best[1] - 0.5, best[0] - 0.5), 1, 1, fill=False, edgecolor="#d62200", linewidth=2))
        panel.set_xticks(range(len(columns)), [f"{value:g}" for value in columns])
        panel.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
        panel.set_xlabel(SYMBOLS.get(across, across))
        panel.set_ylabel(SYMBOLS.get(up, up))
        panel.grid(False)
        figure.colorbar(shown, ax=panel, label="Test mAP (%)").outline.set_visible(False)
        numbers += _swept_numbers(outcomes)
        findings.append(_best_sentence(dataset, outcomes))
    return Drawing(figure, numbers, findings)


def curve(panels: Panels) -> Drawing:
    """Test mAP over one value on a logarithmic axis, with bars of one standard deviation over the seeds."""
    figure, axes = _panels(panels)
    numbers: Numbers = []
    findings = []
    for panel, (dataset, outcomes) in zip(axes, panels.items(), strict=True):
        (name,) = outcomes[0].swept
        places = [outcome.swept[name] for outcome in outcomes]
        spreads = [outcome.spread for outcome in outcomes if outcome.spread is not None]
        means, stds = [spread.mean for spread in spreads], [spread.std or 0.0 for spread in spreads]
        panel.errorbar(places, means, stds, color=SERIES[1]["color"], marker="s", capsize=2.5, elinewidth=1)
        best = int(np.argmax(means))
        panel.plot(places[best], means[best], "o", markersize=9, markerfacecolor="none", color="#d62200", zorder=3)
        panel.set_xscale("log")
        panel.set_xlabel(SYMBOLS.get(name, name))
        panel.set_ylabel("Test mAP (%)")
        numbers += _swept_numbers(outcomes)
        findings.append(_best_sentence(dataset, outcomes))
    return Drawing(figure, numbers, findings)


def shares(panels: Panels) -> Drawing:
    """Test mAP over the share of labels that is known, a line per row; those that are compared most stand out."""
    figure, axes = _panels(panels, height=1.4 * HEIGHT)
    numbers: Numbers = []
    findings, tables = [], []
    for panel, (dataset, outcomes) in zip(axes, panels.items(), strict=True):
        by_row: dict[Row, list[tuple[float, float]]] = {}
        for outcome in outcomes:
            if outcome.spread is not None:
                (share,) = outcome.swept.values()
                by_row.setdefault(outcome.line.row, []).append((share, outcome.spread.mean))
        series = dict(zip(STANDING_OUT, method_styles(STANDING_OUT), strict=True))
        for row, points in by_row.items():
            style = series.get(row.method)
            options: dict[str, Any] = (
                {"color": MUTED, "alpha": 0.5, "linewidth": 0.7, "zorder": 1}
                if style is None
                else {**style.line, "label": row.title}
            )
            panel.plot(*zip(*points, strict=True), **options)
        places = sorted({outcome.swept["data.known"] for outcome in outcomes})
        panel.set_xticks(places, [f"{100 * place:g}" for place in places])
        panel.set_xlabel("Known labels (%)")
        panel.set_ylabel("Test mAP (%)")
        panel.legend(loc="lower right", title="Thin: other methods", title_fontsize=7)
        numbers += _swept_numbers(outcomes)
        findings.append(_first_sentence(dataset, by_row, places))
        tables.append(_share_table(dataset, by_row, places))
    return Drawing(figure, numbers, findings, "".join(tables))


def _first_sentence(
    dataset: Dataset, by_row: Mapping[Row, Sequence[tuple[float, float]]], places: Sequence[float]
) -> str:
    """Which row is first at each share."""
    found = []
    for place in places:
        here = {row.title: dict(points)[place] for row, points in by_row.items() if place in dict(points)}
        best = max(here, key=here.__getitem__)
        found.append(f"{best} with {100 * place:g} % ({here[best]:.2f})")
    return f"{dataset.title}, highest: {', '.join(found)}."


def _share_table(dataset: Dataset, by_row: Mapping[Row, Sequence[tuple[float, float]]], places: Sequence[float]) -> str:
    """A line for each row and a column for each share, in Markdown."""
    lines = [["method", *(f"{100 * place:g} %" for place in places)], ["---", *["---:"] * len(places)]]
    for row, points in by_row.items():
        means = dict(points)
        lines.append([row.title, *(f"{means[place]:.2f}" if place in means else NOTHING for place in places)])
    return f"## {dataset.title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def gradients(panels: Panels) -> Drawing:
    """The gradient of BCE and of OPML with respect to a score; nothing is trained for it."""
    figure = Figure(figsize=(2 * WIDTH, 1.25 * HEIGHT), layout="constrained")
    first, second, third = figure.subplots(1, 3, sharex=True)
    scores = np.linspace(-6, 6, 121)
    curves = {
        (first, "A positive label"): {
            "BCE": -_sigmoid(-scores),
            **{rf"OPML, $\tilde{{\alpha}}$ = {tilde}": positive_gradient(scores, tilde) for tilde in TILDES},
        },
        (second, "The only negative label"): {
            "BCE": _sigmoid(scores),
            **{rf"OPML, $\tilde{{\beta}}$ = {tilde}": negative_gradient(scores, tilde) for tilde in TILDES},
        },
        (third, "One of two negative labels"): {
            "BCE": _sigmoid(scores),
            **{f"OPML, other at {other:g}": negative_gradient(scores, 0.5, other) for other in OTHERS},
        },
    }
    numbers: Numbers = []
    for (panel, title), lines in curves.items():
        for (label, values), style in zip(lines.items(), cycle(SERIES), strict=False):
            panel.plot(scores, values, label=label, color=style["color"], linestyle=style["linestyle"])
            plain = label.replace(r"$\tilde{\alpha}$", "alpha").replace(r"$\tilde{\beta}$", "beta")
            numbers += [
                {"label": title, "loss": plain, "score": round(score, 2), "gradient": round(value, 5)}
                for score, value in zip(scores.tolist(), values.tolist(), strict=True)
            ]
        panel.set_title(title)
        panel.set_xlabel("Score $s$")
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.24), handlelength=2.6)
    first.set_ylabel(r"Gradient $\partial L / \partial s$")
    return Drawing(figure, numbers, [])


def positive_gradient(scores: Floats, alpha: float) -> Floats:
    """∂L/∂s_p = −exp(−s_p) / (α + exp(−s_p)) of OPML with one positive, α = α̃ / (1 − α̃)."""
    return -np.exp(-scores) / (alpha / (1 - alpha) + np.exp(-scores))


def negative_gradient(scores: Floats, beta: float, other: float = -math.inf) -> Floats:
    """∂L/∂s_n = exp(s_n) / (β + Σ exp(s_n)) of OPML with this negative and one other, β = β̃ / (1 − β̃)."""
    return np.exp(scores) / (beta / (1 - beta) + np.exp(scores) + math.exp(other))


PICTURES: Mapping[Picture, Callable[[Panels], Drawing]] = {
    "confidence": confidence,
    "epochs": epochs,
    "grid": grid,
    "curve": curve,
    "shares": shares,
    "gradients": gradients,
}


def _panels(panels: Panels, *, width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width * len(panels), height), layout="constrained")
    axes = list(figure.subplots(1, len(panels), squeeze=False)[0])
    for panel, dataset in zip(axes, panels, strict=True):
        panel.set_title(dataset.title)
    return figure, axes


def _line(outcome: Outcome) -> dict[str, Any]:
    return {"dataset": outcome.line.dataset.name, "method": outcome.line.row.method, "runs": len(outcome.runs)}


def _swept_numbers(outcomes: Sequence[Outcome]) -> Numbers:
    return [
        {
            **_line(outcome),
            **outcome.swept,
            "test_map": round(outcome.spread.mean, 3),
            "std": "" if outcome.spread.std is None else round(outcome.spread.std, 3),
        }
        for outcome in outcomes
        if outcome.spread is not None
    ]


def _best_sentence(dataset: Dataset, outcomes: Sequence[Outcome]) -> str:
    means = {values_text(outcome.swept): float(np.mean(outcome.test_maps)) for outcome in outcomes}
    best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    sentence = f"{dataset.title}: from {means[worst]:.2f} ({worst}) to {means[best]:.2f} ({best})"
    known = published_best(outcomes[0].line.row.method, dataset.name)
    return f"{sentence}; best in the paper: {values_text(known)}." if known else f"{sentence}."


def _sigmoid(scores: Floats) -> Floats:
    return (1 + np.tanh(scores / 2)) / 2


LOOKED_AT = 200  # training images to choose examples from
IMAGES, MAPS = 4, 4  # rows of the figure, and labels in each
INCHES = 1.45  # of one picture

_COLOURS = {"observed": "#0067a8", "missing": "#00785a", "other": "#c24a00"}
_WORDS = {
    ("observed", True): "observed",
    ("observed", False): "observed, not found",
    ("missing", True): "missing, found",
    ("missing", False): "missing, not found",
    ("other", True): "found, not in the truth",
}


class Sign(NamedTuple):
    """A label of an image, and what is known of it."""

    column: int  # of the class
    kind: str  # "observed"; "missing": true, but not observed; "other": not true
    found: bool
    probability: float


class Example(NamedTuple):
    """A training image, and its labels to show."""

    row: int  # of the table
    marks: Sequence[Sign]

    @property
    def completed(self) -> int:
        """How many missing labels are found."""
        return sum(mark.found for mark in self.marks if mark.kind == "missing")

    @property
    def goes_beyond(self) -> bool:
        """Whether a label is found that even the ground truth does not have."""
        return any(mark.kind == "other" for mark in self.marks)


def activations(panels: Panels) -> Drawing:
    """Training images, each followed by the maps of its labels: observed, missing, and others that the model finds."""
    parts = []
    for dataset, outcomes in panels.items():
        run = outcomes[0].runs[0]
        parts.append((dataset, run, choose_examples(run)))
    height = sum(len(examples) for *_, examples in parts)
    across = 1 + max(len(example.marks) for *_, examples in parts for example in examples)
    figure = Figure(figsize=(across * INCHES, height * (INCHES + 0.35)), layout="constrained")
    rows = iter(figure.subplots(height, across, squeeze=False))
    numbers: list[dict[str, Any]] = []
    findings = []
    for dataset, run, examples in parts:
        for example, (image, maps) in zip(examples, _pictures(run, examples), strict=True):
            _draw(next(rows), image, maps, example.marks, run.classes)
            numbers += [
                {
                    "dataset": dataset.name,
                    "image": run.table.files[example.row],
                    "label": run.classes[mark.column],
                    "kind": mark.kind,
                    "found": int(mark.found),
                    "probability": round(mark.probability, 4),
                }
                for mark in example.marks
            ]
        missing = sum(mark.kind == "missing" for example in examples for mark in example.marks)
        found = sum(example.completed for example in examples)
        findings.append(
            f"{dataset.title}: of the {missing} missing labels shown, the model finds {found}; these are the images "
            f"where it finds most, of the first {LOOKED_AT} training images with several labels."
        )
    return Drawing(figure, numbers, findings)


def choose_examples(run: FinishedRun) -> list[Example]:
    """Of some training images with several labels, those with the most to show: missing labels found, or others."""
    task, decisions = run.task, run.decisions
    truth = task.table.labels[task.train]
    positives = (truth == POSITIVE).sum(axis=1)
    several = np.flatnonzero(positives >= min(2, positives.max()))[:LOOKED_AT]
    scores = score_images(run.classifier, task.table, task.train[several], precision=run.description.precision)
    examples = []
    for place, chances, seen in zip(
        several.tolist(), decisions.probabilities(scores), decisions.labels(scores), strict=True
    ):
        true, observed = truth[place] == POSITIVE, task.observed[place] == POSITIVE
        kinds = np.where(observed, "observed", np.where(true, "missing", "other"))
        shown = np.flatnonzero(true | seen)
        marks = [
            Sign(column, str(kinds[column]), bool(seen[column]), float(chances[column])) for column in shown.tolist()
        ]
        marks.sort(key=lambda mark: (list(_COLOURS).index(mark.kind), -mark.probability))
        examples.append(Example(int(task.train[place]), marks[:MAPS]))
    return sorted(examples, key=lambda example: -example.completed - example.goes_beyond)[:IMAGES]


def _pictures(run: FinishedRun, examples: Sequence[Example]) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """The image (H, W, 3) of each example, and the evidence (K, h, w) for its labels."""
    cells = [(example.row, mark.column) for example in examples for mark in example.marks]
    rows, columns = (np.array(each) for each in zip(*cells, strict=True))
    maps = iter(suggestion_maps(run.classifier, run.table, rows, columns, workers=0))
    for example in examples:
        row = example.row
        pixels = pixels_of(run.table, row)
        yield pixels, np.stack([next(maps) for _ in example.marks])


def _draw(
    axes: Sequence[Axes],
    image: NDArray[np.uint8],
    maps: NDArray[np.uint8],
    marks: Sequence[Sign],
    classes: Sequence[str],
) -> None:
    """One row: the image, then the evidence for each label over it."""
    image = fitted(image)
    axes[0].imshow(image)
    axes[0].set_title("image", fontsize=8)
    for panel, mark, evidence in zip(axes[1:], marks, maps, strict=False):
        panel.imshow(overlay(image, evidence))
        words = f"{classes[mark.column]} {mark.probability:.2f}\n{_WORDS[mark.kind, mark.found]}"
        panel.set_title(words, fontsize=7.5, color=_COLOURS[mark.kind])
    for panel in axes:
        panel.set_axis_off()
