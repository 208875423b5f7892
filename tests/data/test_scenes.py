import numpy as np
import pytest

from onepair.data.formats import scenes
from onepair.data.formats.scenes import CLASSES, THINGS, draw_scene, read_scenes, tag_scene


def test_a_scene_is_labelled_by_what_it_shows(monkeypatch):
    """With a plain colour for every kind of thing, what a scene shows can be read back from its pixels."""
    colours = {name: (255, 12 * i, 7 * i * i % 256) for i, name in enumerate(THINGS)}
    for name, each in THINGS.items():
        paint = "#{:02x}{:02x}{:02x}".format(*colours[name])
        monkeypatch.setitem(THINGS, name, each._replace(draw=lambda pen, paint=paint: pen.disc(paint, 0, 0, 1)))
    for seed in range(60):
        scene = draw_scene(np.random.default_rng(seed))
        values, areas = np.unique(np.asarray(scene.image).reshape(-1, 3), axis=0, return_counts=True)
        seen = {tuple(colour) for colour in values[areas > 20].tolist()}  # where two meet, colours mix
        assert {name for name, colour in colours.items() if colour in seen} == set(scene.shown)
        assert list(scene.shown.values()) == sorted(scene.shown.values(), reverse=True)


@pytest.mark.parametrize("name", CLASSES)
def test_every_kind_is_drawn_and_comes_up(name):
    assert any(name in draw_scene(np.random.default_rng(seed)).shown for seed in range(150))


def test_same_seed_same_scenes():
    first, again, other = (read_scenes(train=2, test=1, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.pixels, again.pixels)
    assert (first.pixels != other.pixels).any()


def test_large_things_are_tagged_first_and_most_labels_are_missing():
    random, shown = np.random.default_rng(0), ["house", "tree", "cat", "sun"]
    tags = [{tag.lower() for tag in tag_scene(shown, random)} for _ in range(2000)]
    rates = [np.mean([name in each for each in tags]) for name in shown]
    assert rates == sorted(rates, reverse=True)
    assert sum(rates) < len(shown) / 2
    wrong = np.mean([bool(each - set(shown)) for each in tags])
    assert wrong == pytest.approx(scenes.WRONG, abs=0.015)
