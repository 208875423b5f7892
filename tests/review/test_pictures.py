"""Images by row: the right pixels, quickly the second time, and nothing that is not the dataset's."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageFile

from onepair.data.label_table import LabelTable
from onepair.errors import DataError
from onepair.review.photos import LARGE, SMALL, Pictures, heat_map
from tests.data.bombs import BOMBS


def table_of(root, *files):
    return LabelTable(tuple(files), ("a",), np.ones((len(files), 1), np.int8), np.array(["train"] * len(files)), root)


def opened(picture):
    return Image.open(io.BytesIO(picture.content))


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def pictures(tmp_path, data):
    def make(*files, **options):
        return Pictures(table_of(data, *files), cache=tmp_path / "cache", **options)

    return make


def save(path, size=(200, 100), colour=(200, 30, 30), **options):
    Image.new("RGB", size, colour).save(path, **options)
    return path


def test_an_image_is_scaled_down_in_proportion_and_never_up(pictures, data):
    save(data / "a.jpg", (2000, 1000))
    save(data / "b.png", (200, 100))
    large, small = (opened(pictures("a.jpg").picture(0, side)) for side in (LARGE, SMALL))
    assert (large.size, small.size) == ((1600, 800), (320, 160))
    assert opened(pictures("b.png").picture(0, SMALL)).size == (200, 100)
    assert max(abs(np.subtract(small.getpixel((5, 5)), (200, 30, 30)))) < 8


def test_only_pixels_are_sent(pictures, data):
    exif = Image.Exif()
    exif[0x010E] = "a secret in the description"
    save(data / "a.jpg", exif=exif)
    assert b"secret" in (data / "a.jpg").read_bytes()
    assert b"secret" not in pictures("a.jpg").picture(0, LARGE).content


def test_orientation_is_applied_to_the_image_and_to_its_frame(pictures, data):
    exif = Image.Exif()
    exif[0x0112] = 6
    save(data / "a.jpg", (200, 100), exif=exif)
    found = pictures("a.jpg")
    assert found.frame(0)[:2] == (100, 200)
    assert opened(found.picture(0, LARGE)).size == (100, 200)


def test_tiny_images_keep_every_pixel(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    table = replace(table_of(tmp_path, "a", "b", "c"), pixels=pixels)
    found = Pictures(table, cache=tmp_path)
    assert found.frame(2).tiny
    picture = found.picture(2, LARGE)
    assert picture.media_type == "image/png"
    np.testing.assert_array_equal(np.asarray(opened(picture)), pixels[2])
    assert found.frame(1).version != found.frame(2).version


def test_what_was_made_once_is_kept(pictures, data, monkeypatch):
    save(data / "a.jpg")
    first = pictures("a.jpg").picture(0, SMALL)
    monkeypatch.setattr("onepair.review.photos.decode", lambda *_, **__: pytest.fail("decoded again"))
    assert pictures("a.jpg").picture(0, SMALL) == first


def test_without_a_place_to_keep_it_an_image_is_made_all_the_same(data, tmp_path):
    save(data / "a.jpg")
    (tmp_path / "cache").write_text("a file, not a folder")
    assert opened(Pictures(table_of(data, "a.jpg"), cache=tmp_path / "cache").picture(0, SMALL)).size == (200, 100)


def test_an_image_that_changed_is_made_anew(pictures, data):
    found = pictures("a.png")
    save(data / "a.png", (100, 100), (0, 0, 0))
    before, black = found.frame(0).version, found.picture(0, SMALL)
    save(data / "a.png", (100, 80), (255, 255, 255))
    assert found.frame(0).version != before
    assert found.picture(0, SMALL) != black


def test_files_that_are_no_images_are_refused_by_name(pictures, data):
    (data / "a.jpg").write_text("root:x:0:0")
    for call in (lambda: pictures("a.jpg").frame(0), lambda: pictures("a.jpg").picture(0, SMALL)):
        with pytest.raises(DataError, match=r"a\.jpg: cannot be read as an image"):
            call()
    with pytest.raises(DataError, match=r"gone\.jpg"):
        pictures("gone.jpg").picture(0, SMALL)


@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.filterwarnings("ignore:Image size")
def test_an_image_beyond_the_limit_is_not_decoded(pictures, data, monkeypatch, kind):
    (data / "a.png").write_bytes(BOMBS[kind](60_000, 60_000))
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda *_: pytest.fail("decoded"))
    for side in (SMALL, LARGE):
        with pytest.raises(DataError, match=r"a\.png: .*more pixels than the limit"):
            pictures("a.png").picture(0, side)


def test_links_that_lead_out_of_the_dataset_are_not_followed_unless_told(pictures, data, tmp_path):
    save(tmp_path / "private.png")
    (data / "link.png").symlink_to(tmp_path / "private.png")
    (tmp_path / "album").mkdir()
    save(tmp_path / "album" / "b.png")
    (data / "folder").symlink_to(tmp_path / "album")
    for file in ("link.png", "folder/b.png"):
        with pytest.raises(DataError, match=f"{file}: is a link to outside of the dataset; .*--follow-links"):
            pictures(file).picture(0, SMALL)
        assert pictures(file, follow_links=True).picture(0, SMALL)


def test_links_within_the_dataset_are_fine(pictures, data, tmp_path):
    save(data / "a.png")
    (data / "link.png").symlink_to("a.png")
    (tmp_path / "elsewhere").symlink_to(data)  # the dataset itself may be reached by a link
    assert pictures("link.png").picture(0, SMALL)
    table = replace(table_of(data, "link.png"), root=tmp_path / "elsewhere")
    assert Pictures(table, cache=tmp_path / "cache").picture(0, SMALL)


def test_files_that_the_table_itself_places_elsewhere_are_its_images(pictures, data, tmp_path):
    (tmp_path / "photos").mkdir()
    save(tmp_path / "photos" / "a.png")
    assert pictures("../photos/a.png").picture(0, SMALL)
    assert pictures(str(tmp_path / "photos" / "a.png")).picture(0, SMALL)
    (tmp_path / "photos" / "b.png").symlink_to(save(data / "c.png"))  # but no link from there
    with pytest.raises(DataError, match="is a link"):
        pictures("../photos/b.png").picture(0, SMALL)


def test_a_heat_map_is_clear_where_it_is_high_and_dim_where_it_is_low():
    values = np.array([[0, 255], [0, 255]], np.uint8)
    overlay = np.asarray(opened(heat_map(values)))
    assert overlay.shape == (128, 128, 4)
    assert overlay[:, -8:, 3].max() == 0
    assert overlay[:, :8, 3].min() > 150
    rising = overlay[64, :, 3].astype(int)
    assert (np.diff(rising) <= 0).all()
