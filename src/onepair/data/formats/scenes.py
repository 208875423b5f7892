"""Picture-book scenes, drawn by this module: twenty kinds of things, and tags as people give them."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageColor, ImageDraw

from onepair.data.formats import register_reader
from onepair.data.label_table import LabelTable, Report, raise_problem
from onepair.data.text_files import exists
from onepair.errors import DataError
from onepair.files import write_atomically
from onepair.label_matrix import LabelMatrix

SIZE = 224  # pixels across a scene
_FINE = 2  # a scene is drawn so many times as large, and scaled down: smooth edges

INK = "#3d3a4b"
WHITE = "#fffdf7"
CREAM = "#f3e5d0"
GLASS = "#cfe8f3"
REDS = ("#e4572e", "#d7263d", "#f26a8d", "#c44536")
BLUES = ("#2e86ab", "#3d5a98", "#4ea5d9", "#5f6caf")
GREENS = ("#4c9f70", "#2f7d4f", "#7fb069", "#86a83a")
YELLOWS = ("#ffc914", "#f9a620", "#ffd966", "#f4d35e")
BROWNS = ("#8d5a3b", "#6f4e37", "#a47148", "#5e4b3c")
PURPLES = ("#8e6bbf", "#b565a7", "#6a4c93")
GREYS = ("#9aa0a8", "#6c757d", "#c9ccd1")
BRIGHT = REDS + BLUES + YELLOWS + PURPLES + GREENS[:2]


class Pen:
    """Draws one thing in a frame of its own: x and y from -1 to 1, y downwards, turned and mirrored as a whole."""

    def __init__(
        self,
        canvas: ImageDraw.ImageDraw,
        random: np.random.Generator,
        centre: NDArray[np.float64],
        size: float,
        tilt: float,
        *,
        mirrored: bool,
    ) -> None:
        self.canvas, self.random, self.centre, self.size = canvas, random, centre, size
        cos, sin = np.cos(tilt), np.sin(tilt)
        self.turn = np.array([[cos, sin], [-sin, cos]]) * ([[-1], [1]] if mirrored else [[1], [1]])

    def pick(self, colours: Iterable[str]) -> str:
        return str(self.random.choice(list(colours)))

    def vary(self, low: float, high: float) -> float:
        return float(self.random.uniform(low, high))

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def _pixels(self, points: ArrayLike) -> list[tuple[float, float]]:
        return [(x, y) for x, y in (np.asarray(points) @ self.turn * self.size + self.centre).tolist()]

    def shape(self, colour: str, *points: tuple[float, float]) -> None:
        self.canvas.polygon(self._pixels(points), fill=colour)

    def line(self, colour: str, width: float, *points: tuple[float, float]) -> None:
        self.canvas.line(self._pixels(points), fill=colour, width=max(1, round(width * self.size)), joint="curve")

    def box(self, colour: str, left: float, top: float, right: float, bottom: float) -> None:
        self.shape(colour, (left, top), (right, top), (right, bottom), (left, bottom))

    def disc(
        self,
        colour: str,
        x: float,
        y: float,
        across: float,
        down: float | None = None,
        *,
        arc: tuple[float, float] = (0, 1),
    ) -> None:
        """An ellipse, or the part of it between two turns: 0 is right, 0.25 below, 0.5 left, 0.75 above."""
        self.shape(colour, *_arc(x, y, across, across if down is None else down, *arc))

    def ring(
        self, colour: str, x: float, y: float, outer: float, inner: float, *, arc: tuple[float, float] = (0, 1)
    ) -> None:
        self.shape(colour, *_arc(x, y, outer, outer, *arc), *_arc(x, y, inner, inner, *arc)[::-1])

    def star(self, colour: str, x: float, y: float, outer: float, inner: float, points: int) -> None:
        turns = np.arange(2 * points) / (2 * points)
        self.shape(colour, *(_arc(x, y, r, r, t, t)[0] for t, r in zip(turns, [outer, inner] * points, strict=True)))

    def face(self, x: float, y: float, size: float) -> None:
        """Two eyes and a smile."""
        for side in (-1, 1):
            self.disc(INK, x + side * 0.4 * size, y - 0.15 * size, 0.12 * size)
        self.ring(INK, x, y, 0.6 * size, 0.48 * size, arc=(0.08, 0.42))


def _arc(x: float, y: float, across: float, down: float, start: float, end: float) -> list[tuple[float, float]]:
    angles = 2 * np.pi * np.linspace(start, end, 40)
    return list(zip((x + across * np.cos(angles)).tolist(), (y + down * np.sin(angles)).tolist(), strict=True))


class Thing(NamedTuple):
    """One of the twenty kinds."""

    draw: Callable[[Pen], None]
    place: str  # sky, land or water
    size: tuple[float, float]  # half of its height, as a share of the scene


THINGS: dict[str, Thing] = {}
TILTED = ("bird", "butterfly", "fish", "kite", "moon", "sun")


def thing(
    place: str, smallest: float = 0.08, largest: float = 0.24
) -> Callable[[Callable[[Pen], None]], Callable[[Pen], None]]:
    """Register the drawing of a kind of thing under its name."""

    def register(draw: Callable[[Pen], None]) -> Callable[[Pen], None]:
        THINGS[draw.__name__] = Thing(draw, place, (smallest, largest))
        return draw

    return register


@thing("sky")
def sun(pen: Pen) -> None:
    light, rays = pen.pick(YELLOWS), int(pen.random.integers(8, 15))
    pen.star(pen.pick(YELLOWS), 0, 0, 1, pen.vary(0.55, 0.75), rays)
    pen.disc(light, 0, 0, 0.66)
    if pen.chance(0.5):
        pen.face(0, 0.05, 0.55)


@thing("sky")
def moon(pen: Pen) -> None:
    hollow = pen.vary(0.3, 0.6)
    pen.shape(
        pen.pick(("#fff3b0", "#f7e7a9", "#e9e4d4")),
        *_arc(0, 0, 0.9, 0.9, 0.13, 0.87),
        *_arc(hollow, 0, 0.66, 0.66, 0.84, 0.16),
    )
    if pen.chance(0.5):
        pen.disc(INK, -0.5, -0.2, 0.07)


@thing("sky", 0.1, 0.22)
def cloud(pen: Pen) -> None:
    colour = pen.pick((WHITE, "#eef2f5", "#cfd8e3", "#f6dfe0", "#b8c4d0"))
    pen.disc(colour, 0, 0.2, 1.3, 0.32)
    for x in np.linspace(-0.75, 0.75, int(pen.random.integers(3, 6))):
        pen.disc(colour, x, pen.vary(-0.15, 0.1), pen.vary(0.4, 0.6))


@thing("sky", 0.16, 0.34)
def rainbow(pen: Pen) -> None:
    for i, colour in enumerate((REDS[0], YELLOWS[1], YELLOWS[0], GREENS[0], BLUES[0], PURPLES[0])):
        pen.ring(colour, 0, 0.5, 1.2 - 0.11 * i, 1.08 - 0.11 * i, arc=(0.5, 1))


@thing("sky", 0.06, 0.16)
def bird(pen: Pen) -> None:
    colour, wing = pen.pick(BLUES + REDS + BROWNS), pen.pick(BLUES + GREYS + BROWNS)
    pen.shape(wing, (-0.6, 0), (-1.2, -0.25), (-1.15, 0.25))
    pen.disc(colour, -0.05, 0, 0.75, 0.42)
    pen.disc(colour, 0.6, -0.25, 0.34)
    pen.shape(YELLOWS[1], (0.88, -0.35), (1.25, -0.2), (0.88, -0.1))
    pen.disc(INK, 0.68, -0.32, 0.07)
    lift = pen.vary(-1.1, -0.6)
    pen.shape(wing, (0.3, -0.05), (-0.5, lift), (-0.75, lift + 0.2), (-0.35, 0.1))


@thing("sky", 0.12, 0.28)
def balloon(pen: Pen) -> None:
    one, other = pen.pick(BRIGHT), pen.pick((WHITE, *YELLOWS))
    for x in (-0.22, 0.22):
        pen.line(BROWNS[1], 0.04, (2 * x, 0.05), (0.8 * x, 0.75))
    for colour, across in ((one, 0.75), (other, 0.52), (one, 0.3), (other, 0.1)):
        pen.disc(colour, 0, -0.3, across, 0.72)
    pen.box(pen.pick(BROWNS), -0.2, 0.68, 0.2, 1)


@thing("sky", 0.1, 0.22)
def kite(pen: Pen) -> None:
    one, other = pen.pick(BRIGHT), pen.pick(BRIGHT)
    tail = [(0.12 * np.sin(4 * t), 0.35 + 0.8 * t) for t in np.linspace(0, 1, 12)]
    pen.line(INK, 0.04, *tail)
    for x, y in tail[4::4]:
        pen.shape(
            other, (x, y), (x - 0.16, y - 0.1), (x - 0.16, y + 0.1), (x, y), (x + 0.16, y - 0.1), (x + 0.16, y + 0.1)
        )
    pen.shape(one, (0, -1), (0.6, -0.35), (0, 0.4), (-0.6, -0.35))
    pen.shape(other, (0, -1), (0.6, -0.35), (0, -0.35))
    pen.shape(other, (0, 0.4), (-0.6, -0.35), (0, -0.35))


@thing("sky", 0.06, 0.15)
def butterfly(pen: Pen) -> None:
    upper, lower = pen.pick(BRIGHT), pen.pick(BRIGHT)
    for side in (-1, 1):
        pen.disc(lower, 0.45 * side, 0.45, 0.42, 0.45)
        pen.disc(upper, 0.55 * side, -0.35, 0.55, 0.52)
        pen.disc(pen.pick((WHITE, *YELLOWS)), 0.6 * side, -0.38, 0.2)
        pen.line(INK, 0.06, (0, -0.5), (0.2 * side, -1))
    pen.disc(INK, 0, 0, 0.11, 0.7)


@thing("land", 0.14, 0.34)
def tree(pen: Pen) -> None:
    leaves = pen.pick((*GREENS, "#d98e32", "#c8553d") if pen.chance(0.5) else GREENS)
    pen.box(pen.pick(BROWNS), -0.13, 0.1, 0.13, 1)
    if pen.chance(0.4):  # a fir
        for top, across in ((-1, 0.4), (-0.65, 0.55), (-0.25, 0.7)):
            pen.shape(leaves, (0, top), (across, top + 0.75), (-across, top + 0.75))
        return
    for x, y in ((-0.38, 0), (0.38, 0), (0, -0.45), (0, 0)):
        pen.disc(leaves, x, y, pen.vary(0.42, 0.52))
    if pen.chance(0.4):
        for x, y in pen.random.uniform(-0.5, 0.35, (6, 2)).tolist():
            pen.disc(REDS[1], x, y - 0.1, 0.08)


@thing("land", 0.08, 0.2)
def flower(pen: Pen) -> None:
    colour, petals = pen.pick(REDS + PURPLES + YELLOWS + (WHITE,)), int(pen.random.integers(5, 9))
    pen.line(GREENS[1], 0.1, (0, -0.3), (0.05, 1))
    for side in (-1, 1):
        pen.shape(GREENS[0], (0.03, 0.8), (side * 0.45, 0.3), (side * 0.2, 0.75))
    if pen.chance(0.3):  # a tulip
        pen.disc(colour, 0, -0.45, 0.4, 0.45, arc=(0, 0.5))
        pen.shape(colour, (-0.4, -0.44), (-0.4, -1), (-0.18, -0.65), (0, -1), (0.18, -0.65), (0.4, -1), (0.4, -0.44))
        return
    for turn in np.arange(petals) / petals:
        x, y = _arc(0, -0.45, 0.33, 0.33, turn, turn)[0]
        pen.disc(colour, x, y, 0.23)
    pen.disc(YELLOWS[1] if colour not in YELLOWS else BROWNS[0], 0, -0.45, 0.22)


@thing("land", 0.08, 0.18)
def mushroom(pen: Pen) -> None:
    pen.shape(CREAM, (-0.25, -0.1), (0.25, -0.1), (0.35, 1), (-0.35, 1))
    pen.disc(pen.pick((*REDS, *BROWNS)), 0, 0.05, pen.vary(0.8, 1), pen.vary(0.75, 1), arc=(0.5, 1))
    for x, y, across in ((-0.45, -0.2, 0.14), (0.05, -0.5, 0.17), (0.45, -0.2, 0.12)):
        pen.disc(WHITE, x, y, across)


@thing("land", 0.16, 0.34)
def house(pen: Pen) -> None:
    wall, roof, wide = (
        pen.pick(("#f2dcb3", "#e8b4a0", "#b7cfdc", WHITE, "#d9cbe3")),
        pen.pick(REDS + BROWNS + BLUES[1:2]),
        pen.vary(0.6, 0.95),
    )
    pen.box(GREYS[1], 0.3, -0.85, 0.5, -0.2)
    pen.box(wall, -wide, -0.2, wide, 1)
    pen.shape(roof, (-wide - 0.15, -0.15), (0, -1), (wide + 0.15, -0.15))
    pen.box(pen.pick(BROWNS + GREENS), -0.18, 0.35, 0.18, 1)
    glass = pen.pick(("#9fd3e8", "#ffe08a"))
    for x in (-0.62 * wide, 0.62 * wide):
        pen.box(INK, x - 0.17, 0.08, x + 0.17, 0.45)
        pen.box(glass, x - 0.13, 0.12, x + 0.13, 0.41)


@thing("land", 0.1, 0.22)
def car(pen: Pen) -> None:
    paint, tall = pen.pick(BRIGHT + GREYS), pen.vary(-0.7, -0.45)
    pen.shape(paint, (-0.75, 0.1), (-0.5, tall), (0.35, tall), (0.7, 0.1))
    pen.shape(GLASS, (-0.6, 0.08), (-0.42, tall + 0.12), (-0.1, tall + 0.12), (-0.1, 0.08))
    pen.shape(GLASS, (0, 0.08), (0, tall + 0.12), (0.3, tall + 0.12), (0.54, 0.08))
    pen.shape(paint, (-1.2, 0.7), (-1.2, 0.2), (-1, 0.05), (0.8, 0.05), (1.2, 0.25), (1.2, 0.7))
    pen.disc(YELLOWS[2], 1.1, 0.35, 0.1)
    for x in (-0.65, 0.65):
        pen.disc(INK, x, 0.7, 0.3)
        pen.disc(GREYS[2], x, 0.7, 0.14)


@thing("land", 0.1, 0.22)
def bicycle(pen: Pen) -> None:
    frame = pen.pick(BRIGHT)
    for x in (-0.75, 0.75):
        pen.ring(INK, x, 0.5, 0.5, 0.41)
        pen.disc(INK, x, 0.5, 0.07)
    pen.line(frame, 0.11, (-0.75, 0.5), (-0.3, -0.2), (0.5, -0.2), (-0.05, 0.5), (-0.75, 0.5))
    pen.line(frame, 0.11, (-0.05, 0.5), (-0.38, -0.4))
    pen.line(frame, 0.11, (0.75, 0.5), (0.42, -0.5), (0.7, -0.6))
    pen.line(INK, 0.14, (-0.6, -0.45), (-0.2, -0.42))


@thing("land", 0.1, 0.22)
def cat(pen: Pen) -> None:
    fur = pen.pick(("#e8963a", "#4a4a57", "#c9b79c", "#8b8f98", WHITE, "#7a5c43"))
    pen.line(fur, 0.17, (0.35, 0.85), (0.8, 0.7), (0.85, 0.2), (0.7, 0))
    pen.disc(fur, 0, 0.5, 0.5, 0.55)
    for side in (-1, 1):
        pen.shape(fur, (side * 0.42, -0.45), (side * 0.45, -1), (side * 0.1, -0.7))
        pen.disc(fur, side * 0.25, 0.95, 0.2, 0.12)
    pen.disc(fur, 0, -0.35, 0.5, 0.42)
    eye = INK if fur not in ("#4a4a57",) else YELLOWS[0]
    for side in (-1, 1):
        pen.disc(eye, side * 0.2, -0.42, 0.07, 0.1)
        for y in (-0.2, -0.12):
            pen.line(GREYS[0], 0.03, (side * 0.2, -0.2), (side * 0.62, y - 0.05))
    pen.shape(REDS[2], (-0.08, -0.28), (0.08, -0.28), (0, -0.18))


@thing("land", 0.12, 0.24)
def snowman(pen: Pen) -> None:
    for y, across in ((0.55, 0.47), (-0.1, 0.35), (-0.58, 0.26)):
        pen.disc("#dbe7f0", 0, y, across + 0.03)
        pen.disc(WHITE, 0, y, across)
    pen.box(pen.pick(BRIGHT), -0.28, -0.42, 0.28, -0.3)
    pen.box(INK, -0.35, -0.84, 0.35, -0.76)
    pen.box(INK, -0.22, -1.05, 0.22, -0.8)
    pen.shape("#f08a24", (0, -0.62), (0.38, -0.55), (0, -0.52))
    for x, y in ((-0.1, -0.66), (0.1, -0.66), (0, -0.12), (0, 0.05), (0, 0.4)):
        pen.disc(INK, x, y, 0.045)
    for side in (-1, 1):
        pen.line(BROWNS[1], 0.06, (side * 0.3, -0.1), (side * 0.75, -0.4))


@thing("land", 0.12, 0.26)
def person(pen: Pen) -> None:
    skin, coat, legs = (
        pen.pick(("#f2c9a1", "#d9a066", "#a66e3f", "#70462a")),
        pen.pick(BRIGHT),
        pen.pick(BLUES + GREYS + BROWNS),
    )
    for side in (-1, 1):
        pen.line(legs, 0.17, (side * 0.12, 0.4), (side * pen.vary(0.12, 0.3), 0.97))
        pen.line(coat, 0.13, (side * 0.2, -0.3), (side * 0.5, pen.vary(-0.5, 0.2)))
    flared = 0.42 if pen.chance(0.5) else 0.24
    pen.shape(coat, (-0.2, -0.4), (0.2, -0.4), (flared, 0.5), (-flared, 0.5))
    pen.disc(pen.pick(BROWNS + YELLOWS[1:2] + (INK,)), 0, -0.72, 0.31)
    pen.disc(skin, 0, -0.66, 0.26)
    pen.face(0, -0.63, 0.24)


@thing("land", 0.1, 0.24)
def umbrella(pen: Pen) -> None:
    one, other = pen.pick(BRIGHT), pen.pick((WHITE, *BRIGHT))
    pen.line(BROWNS[1], 0.07, (0, -0.9), (0, 0.85), (0.08, 0.97), (0.2, 0.95), (0.24, 0.8))
    for colour, across in ((one, 0.95), (other, 0.62), (one, 0.25)):
        pen.disc(colour, 0, 0.05, across, 0.95, arc=(0.5, 1))


@thing("water", 0.12, 0.3)
def boat(pen: Pen) -> None:
    hull = pen.pick(BRIGHT + BROWNS)
    if pen.chance(0.65):
        pen.line(BROWNS[1], 0.08, (0, -1), (0, 0.5))
        pen.shape(pen.pick((WHITE, *YELLOWS, *REDS)), (0.08, -0.95), (0.08, 0.3), (0.8, 0.3))
        pen.shape(pen.pick((WHITE, "#f2dcb3")), (-0.08, -0.7), (-0.08, 0.3), (-0.6, 0.3))
    else:
        pen.box(pen.pick(BRIGHT), 0.05, -0.75, 0.35, 0.1)
        pen.box(WHITE, -0.5, -0.2, 0.6, 0.45)
        for x in (-0.25, 0.05, 0.35):
            pen.disc(BLUES[0], x, 0.1, 0.09)
    pen.shape(hull, (-1, 0.4), (1, 0.4), (0.7, 0.95), (-0.7, 0.95))


@thing("water", 0.07, 0.17)
def fish(pen: Pen) -> None:
    colour, stripe = pen.pick(REDS + YELLOWS + PURPLES + ("#f08a24",)), pen.pick((WHITE, *BRIGHT))
    pen.shape(stripe, (-0.6, 0), (-1.2, -0.5), (-1.05, 0), (-1.2, 0.5))
    pen.shape(stripe, (-0.3, -0.4), (0.1, -0.9), (0.4, -0.4))
    pen.disc(colour, 0, 0, 0.95, pen.vary(0.5, 0.7))
    for x in (-0.35, 0):
        pen.line(stripe, 0.1, (x, -0.4), (x + 0.08, 0), (x, 0.4))
    pen.disc(WHITE, 0.55, -0.12, 0.16)
    pen.disc(INK, 0.58, -0.12, 0.08)


CLASSES = tuple(sorted(THINGS))
SKIES = {  # the colours at the top and at the horizon
    "day": ("#8ecae6", "#dff3f8"),
    "noon": ("#5fb3e6", "#bfe6f5"),
    "haze": ("#b9c6cf", "#e4ebef"),
    "dusk": ("#f2a07b", "#fde2b8"),
    "night": ("#22305c", "#4d5b94"),
}
LANDS = (("#a7c957", "#6a994e"), ("#f4f8fb", "#d5e3ec"), ("#f3dfa2", "#e0c27a"), ("#c3c6cc", "#9ba1a9"))
WATER = ("#5fa8d3", "#2b6f9e")
HILLS = ("#8fb39a", "#9fb8ad", "#7a8fa6", "#b7a58b")


class Scene(NamedTuple):
    """A picture, and the size of each thing in it, the largest first."""

    image: Image.Image
    shown: dict[str, float]


def draw_scene(random: np.random.Generator) -> Scene:
    """Draw a scene of some of the twenty kinds, each at most once and none of them hidden.

    Args:
        random: every choice comes from it.

    Returns:
        The picture, `SIZE` pixels across, and what it shows.

    Examples:
        >>> scene = draw_scene(np.random.default_rng(0))
        >>> scene.image.size, set(scene.shown) <= set(CLASSES)
        ((224, 224), True)
    """
    sky, horizon = str(random.choice(list(SKIES))), float(random.uniform(0.45, 0.6))
    shore = float(random.choice([horizon, 0.72, 1.0], p=[0.2, 0.45, 0.35]))  # land lies above it, water below
    image = _draw_background(random, sky, horizon, shore)
    canvas = ImageDraw.Draw(image)
    spots = _choose_spots(random, sky, {"sky": (0.08, horizon), "land": (horizon, shore), "water": (shore, 1.0)})
    for name, (x, y, size) in sorted(spots.items(), key=lambda each: each[1][1] + each[1][2]):  # the nearest last
        tilt = random.normal(0, 0.2 if name in TILTED else 0.03)
        place = np.array([x, y]) * image.width
        THINGS[name].draw(Pen(canvas, random, place, size * image.width, tilt, mirrored=random.random() < 0.5))
    largest_first = sorted(spots, key=lambda name: -spots[name][2])
    return Scene(image.reduce(_FINE), {name: spots[name][2] for name in largest_first})


def _choose_spots(
    random: np.random.Generator, sky: str, regions: dict[str, tuple[float, float]]
) -> dict[str, tuple[float, float, float]]:
    """The centre and the size of each thing; one that finds no room among the others is left out."""
    possible = [name for name, each in THINGS.items() if regions[each.place][0] < regions[each.place][1]]
    weights = np.array([0.1 if name == ("sun" if sky == "night" else "moon") else 1.0 for name in possible])
    wanted = random.choice(possible, 1 + random.binomial(7, 0.5), replace=False, p=weights / weights.sum())
    spots: dict[str, tuple[float, float, float]] = {}
    for name in wanted.tolist():
        place, sizes = THINGS[name][1:]
        top, bottom = regions[place]
        for _ in range(20):
            size = float(random.uniform(*sizes))
            x, base = random.uniform(size, 1 - size), random.uniform(top + 0.04, bottom - 0.01)
            y = min(max(base, size), bottom) if place == "sky" else max(base, top + 2 * size * (name == "fish")) - size
            if all(np.hypot(x - other[0], y - other[1]) > 0.85 * (size + other[2]) for other in spots.values()):
                spots[name] = (x, y, size)
                break
    return spots


def _draw_background(random: np.random.Generator, sky: str, horizon: float, shore: float) -> Image.Image:
    side = SIZE * _FINE
    image = _gradient(SKIES[sky], side, side)
    canvas = ImageDraw.Draw(image)
    if sky == "night":
        for x, y in random.uniform(0, side, (40, 2)).tolist():
            canvas.ellipse((x, y, x + 4, y + 4), fill=CREAM)
    if random.random() < 0.6:
        hill = str(random.choice(HILLS))
        for x, wide, high in random.uniform([0, 0.25, 0.08], [1, 0.5, 0.2], (3, 3)).tolist():
            edges = (x - wide, horizon - high, x + wide, horizon + high)
            canvas.ellipse([edge * side for edge in edges], fill=hill)
    for top, bottom, colours in ((horizon, shore, LANDS[random.integers(len(LANDS))]), (shore, 1, WATER)):
        if top < bottom:
            image.paste(_gradient(colours, side, round((bottom - top) * side) + 1), (0, round(top * side)))
    if shore < 1:
        for x, y in random.uniform([0, shore + 0.02], [1, 1], (14, 2)).tolist():  # waves
            canvas.line([x * side, y * side, (x + 0.07) * side, y * side], fill="#a9d3ea", width=3)
    return image


def _gradient(colours: tuple[str, str], width: int, height: int) -> Image.Image:
    """A picture that goes from one colour at the top to another at the bottom."""
    top, bottom = (np.array(ImageColor.getrgb(colour)) for colour in colours)
    column = top + (bottom - top) * np.linspace(0, 1, height)[:, None]
    return Image.fromarray(np.repeat(column.round().astype(np.uint8)[:, None], width, axis=1))


TAGGED = (0.9, 0.5)  # how often the largest thing of a scene is tagged, and by which factor each further one is less so
WRONG = 0.03  # of the scenes have a tag of something that they do not show
MISSPELT = 0.04  # of the tags begin with a capital


def tag_scene(shown: Iterable[str], random: np.random.Generator) -> list[str]:
    """Tag a scene as people do: what is large first, hardly anything small, now and then carelessly or wrongly.

    Args:
        shown: what the scene shows, the largest first.
        random: every choice comes from it.

    Returns:
        One tag or more.

    Examples:
        >>> tag_scene(["house", "tree", "cat", "sun"], np.random.default_rng(3))
        ['house', 'tree']
    """
    shown = list(shown)
    often, factor = TAGGED
    tags = [name for rank, name in enumerate(shown) if random.random() < often * factor**rank] or shown[:1]
    if random.random() < WRONG:
        tags[-1] = str(random.choice([name for name in CLASSES if name not in shown]))
    return [name.capitalize() if random.random() < MISSPELT else name for name in tags]


def write_scenes(folder: Path, *, number: int = 400, seed: int = 0) -> Path:
    """Write scenes as people keep photos: a folder of pictures, and `labels.csv` with the tags that came to mind.

    Args:
        folder: where to; it is made. `truth.csv` there says what the scenes really show.
        number: how many scenes.
        seed: of all of it; the same seed writes the same files.

    Returns:
        The path of `labels.csv`.

    Raises:
        DataError: if a table of other labels is there already.
    """
    tables = {"labels.csv": "file,labels\n", "truth.csv": "file,labels\n"}
    pictures: dict[str, Image.Image] = {}
    for i in range(number):
        random, file = np.random.default_rng([seed, i]), f"pictures/{i:03}.jpg"
        pictures[file], shown = draw_scene(random)
        tables["labels.csv"] += f"{file},{';'.join(tag_scene(shown, random))}\n"
        tables["truth.csv"] += f"{file},{';'.join(shown)}\n"
    for name, content in tables.items():
        if (folder / name).exists() and (folder / name).read_bytes() != content.encode():
            raise DataError(f"{folder / name}: is there already, with other labels; name another folder")
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    for file, picture in pictures.items():
        picture.save(folder / file, quality=90)
    for name, content in tables.items():
        write_atomically(folder / name, content.encode())
    return folder / "labels.csv"


@register_reader(
    "scenes",
    detect=lambda path: path == Path("scenes") and not exists(path),
    description="picture-book scenes of twenty kinds of things, drawn by the package",
    layout="the word scenes in place of a path",
)
def read(path: Path, *, report: Report = raise_problem) -> LabelTable:
    """Return the embedded dataset; see `read_scenes`."""
    return read_scenes()


def read_scenes(*, train: int = 600, test: int = 200, seed: int = 0) -> LabelTable:
    """Draw scenes with all of their labels.

    Args:
        train, test: how many scenes of each split.
        seed: of all of it; the same seed gives the same scenes.

    Returns:
        The scenes, held in memory.

    Examples:
        >>> table = read_scenes(train=2, test=1)
        >>> table.pixels.shape, table.labels.shape
        ((3, 224, 224, 3), (3, 20))
    """
    if train < 1 or test < 1:
        raise ValueError(f"train and test must be at least 1 scene each, got {train} and {test}")
    scenes = [draw_scene(np.random.default_rng([seed, i])) for i in range(train + test)]
    split = np.repeat(["train", "test"], [train, test])
    return LabelTable(
        files=tuple(f"{name}/{i:05}.png" for i, name in enumerate(split.tolist())),
        classes=CLASSES,
        labels=LabelMatrix.of(np.array([[name in scene.shown for name in CLASSES] for scene in scenes], np.int8)),
        split=split,
        root=Path("scenes"),
        pixels=np.stack([np.asarray(scene.image) for scene in scenes]),
    )
