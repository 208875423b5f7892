"""Every kind of image file becomes upright RGB, or one sentence that names the file."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageFile

from onepair.data.images.batches import normalise, prepare
from onepair.data.images.decode import FORMATS, Preprocessing, decode, scale
from onepair.errors import DataError, UserError
from tests.data.bombs import BOMBS

SQUASH = Preprocessing(8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def scene(height: int = 12, width: int = 20) -> NDArray[np.uint8]:
    """Smooth, and different in each corner and channel."""
    rows, columns = np.mgrid[0:height, 0:width]
    return np.stack(
        [rows * 255 // height, columns * 255 // width, (rows + columns) * 255 // (height + width)], axis=-1
    ).astype(np.uint8)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF"])
def test_lossless_files_come_back_as_they_were(kind: str) -> None:
    np.testing.assert_array_equal(decode(encode(Image.fromarray(scene()), kind)), scene())


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 2}])
def test_jpeg_equals_pillow(tmp_path: Path, options: dict[str, Any]) -> None:
    file = tmp_path / "a.jpg"
    file.write_bytes(encode(Image.fromarray(scene()), "JPEG", **options))
    np.testing.assert_array_equal(decode(file), np.asarray(Image.open(file)))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_grey_has_three_equal_channels(kind: str) -> None:
    pixels = decode(encode(Image.fromarray(scene()[..., 0]), kind))
    assert pixels.shape == (12, 20, 3)
    assert (pixels == pixels[..., :1]).all()


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_palette(kind: str) -> None:
    image = Image.fromarray(scene()).quantize(32)
    np.testing.assert_array_equal(decode(encode(image, kind)), np.asarray(image.convert("RGB")))


def test_black_and_white_is_black_and_white() -> None:
    image = Image.fromarray(scene()[..., 0] > 100)
    assert set(np.unique(decode(encode(image, "PNG")))) == {0, 255}


def test_cmyk_jpeg_is_not_inverted() -> None:
    white, red = Image.new("CMYK", (8, 8), (0, 0, 0, 0)), Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    assert decode(encode(white, "JPEG")).min() > 250
    np.testing.assert_allclose(decode(encode(red, "JPEG"))[4, 4], [255, 0, 0], atol=4)


@pytest.mark.parametrize("value", [0, 257, 12_345, 40_000, 65_535])
def test_sixteen_bit_grey_is_scaled_not_clipped(value: int) -> None:
    image = Image.fromarray(np.full((4, 4), value, np.uint16))
    assert (decode(encode(image, "PNG")) == round(value / 257)).all()


def test_thirty_two_bit_grey_is_refused() -> None:
    with pytest.raises(DataError, match="32 bits a pixel"):
        decode(encode(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"))


@pytest.mark.parametrize(("alpha", "expected"), [(0, [255, 255, 255]), (255, [200, 0, 0]), (51, [244, 204, 204])])
def test_alpha_lies_on_white(alpha: int, expected: list[int]) -> None:
    pixels = decode(encode(Image.new("RGBA", (4, 4), (200, 0, 0, alpha)), "PNG"))
    np.testing.assert_allclose(pixels[0, 0], expected, atol=1)


def test_transparent_palette_and_grey_lie_on_white() -> None:
    palette = Image.fromarray(np.zeros((4, 4), np.uint8)).convert("P")
    assert (decode(encode(palette, "PNG", transparency=0)) == 255).all()
    assert (decode(encode(Image.new("LA", (4, 4), (0, 0)), "PNG")) == 255).all()


UPRIGHT = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_exif_orientation_is_applied(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(scene())
    stored = np.asarray(Image.open(io.BytesIO(encode(image, kind))))
    np.testing.assert_array_equal(decode(encode(image, kind, exif=exif)), UPRIGHT[orientation](stored))


def test_only_much_larger_jpegs_are_decoded_at_a_fraction() -> None:
    large, close = (encode(Image.fromarray(scene(side, side)), "JPEG") for side in (64, 63))
    assert decode(large, at_least=16).shape == (32, 32, 3)
    assert decode(close, at_least=16).shape == (63, 63, 3)
    whole = prepare(decode(large), Preprocessing(16, mean=(0, 0, 0), std=(1, 1, 1))).int()
    part = prepare(decode(large, at_least=16), Preprocessing(16, mean=(0, 0, 0), std=(1, 1, 1))).int()
    assert (whole - part).abs().max() <= 3


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF"])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_truncated_files_are_errors_that_name_the_file(tmp_path: Path, kind: str, kept: float) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    whole = encode(Image.fromarray(noise), kind)
    file = tmp_path / "cut.img"
    file.write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(DataError, match=r"cut\.img"):
        decode(file)


def test_jpeg_that_ends_in_zeros_is_an_error() -> None:
    whole = encode(Image.fromarray(scene(64, 64)), "JPEG")
    with pytest.raises(DataError, match="cannot be read"):
        decode(whole[: len(whole) // 2] + bytes(len(whole) // 2))


@pytest.mark.parametrize("content", [b"", b"not an image at all", b"\xff\xd8\xff"])
def test_what_is_no_image_is_an_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "note.jpg"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"note\.jpg: "):
        decode(file)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.jpg.*No such file"):
        decode(tmp_path / "gone.jpg")
    with pytest.raises(DataError, match="Is a directory"):
        decode(tmp_path)


@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.parametrize("side", [9_500, 20_000, 60_000])  # above the limit, twice it, and far above
@pytest.mark.filterwarnings("ignore:Image size")
def test_images_with_more_pixels_than_the_limit_are_refused_before_they_are_decoded(
    kind: str, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda *_: pytest.fail("decoded"))
    with pytest.raises(DataError, match=r"more pixels than the limit of 89,478,485; .* ONEPAIR_MAX_PIXELS"):
        decode(BOMBS[kind](side, side))


@pytest.mark.parametrize(("limit", "fits"), [("4095", False), ("4096", True)])
def test_the_limit_is_set_by_the_environment(limit: str, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)  # and back again
    monkeypatch.setenv("ONEPAIR_MAX_PIXELS", limit)
    image = encode(Image.fromarray(scene(64, 64)), "PNG")
    if fits:
        assert decode(image).shape == (64, 64, 3)
    else:
        with pytest.warns(Image.DecompressionBombWarning), pytest.raises(DataError, match="the limit of 4,095"):
            decode(image)


def test_a_jpeg_counts_by_the_pixels_that_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
    monkeypatch.setenv("ONEPAIR_MAX_PIXELS", "4000")
    with pytest.warns(Image.DecompressionBombWarning):
        assert decode(encode(Image.fromarray(scene(80, 80)), "JPEG"), at_least=20).shape == (40, 40, 3)


@pytest.mark.parametrize("limit", ["0", "-3", "many", "1e6"])
def test_a_limit_that_is_no_number_is_refused(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEPAIR_MAX_PIXELS", limit)
    with pytest.raises(UserError, match="ONEPAIR_MAX_PIXELS must be a whole number"):
        decode(BOMBS["png"](1, 1))


def test_an_image_of_many_bands_is_the_same_as_in_one_piece() -> None:
    """With transparency, which each band has to keep, and an orientation, which concerns all of them together."""
    random = np.random.default_rng(1).integers(0, 256, (600, 50, 4), dtype=np.uint8)
    image = Image.fromarray(random)
    white = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    np.testing.assert_array_equal(decode(encode(image, "PNG")), np.asarray(white))
    palette = Image.fromarray(random[..., :3]).convert("P")
    np.testing.assert_array_equal(decode(encode(palette, "GIF")), np.asarray(palette.convert("RGB")))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no such pipes here")
def test_a_pipe_is_no_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(DataError, match=r"pipe\.png: cannot be read as an image: Is a pipe"):
        decode(tmp_path / "pipe.png")


def test_formats_that_start_other_programs_are_refused() -> None:
    with pytest.raises(DataError, match="not an image"):
        decode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")


def image_or_data_error(content: bytes) -> None:
    try:
        pixels = decode(content)
    except DataError:
        return
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0"]),
)
@settings(max_examples=60, deadline=None)
def test_random_bytes(content: bytes, signature: bytes) -> None:
    image_or_data_error(signature + content)


SMALL_FILES = {kind: encode(Image.fromarray(scene()), kind) for kind in ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")}


@given(
    st.sampled_from(sorted(SMALL_FILES)), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=8)
)
@settings(max_examples=60, deadline=None)
def test_mutated_files(kind: str, changes: list[tuple[int, int]]) -> None:
    content = bytearray(SMALL_FILES[kind])
    for position, value in changes:
        content[position % len(content)] = value
    image_or_data_error(bytes(content))


def test_prepared_images_are_scaled_with_colours_first() -> None:
    prepared = prepare(scene(), SQUASH)
    assert prepared.dtype == torch.uint8
    np.testing.assert_array_equal(prepared.permute(1, 2, 0), scale(scene(), SQUASH))


def test_flip_mirrors_left_and_right() -> None:
    plain, flipped = (prepare(scene(), SQUASH, flip=flip) for flip in (False, True))
    assert torch.equal(flipped, plain.flip(-1))
    assert not torch.equal(flipped, plain)


def test_normalise_keeps_the_memory_format() -> None:
    images = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    kind = Preprocessing(4, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    expected = (images / 255 - torch.tensor(kind.mean).view(3, 1, 1)) / torch.tensor(kind.std).view(3, 1, 1)
    normalised = normalise(images, kind)
    torch.testing.assert_close(normalised, expected)
    assert normalised.dtype == torch.float32
    assert normalised.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "is an HEIC or AVIF photo that cannot be read"),
        (b"\0\0\0\x1cftypavif\0\0\0\0", "is an HEIC or AVIF photo that cannot be read"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0", "is not an image (JPEG, PNG, WEBP, GIF, BMP, TIFF)"),
    ],
)
def test_what_is_no_image_is_named(tmp_path, content, what):
    (tmp_path / "a.jpg").write_bytes(content)
    for source, name in ((tmp_path / "a.jpg", tmp_path / "a.jpg"), (content, "image")):
        with pytest.raises(DataError) as caught:
            decode(source)
        assert str(caught.value) == f"{name}: {what}"


PLAIN: dict[str, Any] = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


def random_pixels(height: int, width: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_squash_takes_the_whole_image(interpolation: Any) -> None:
    way = Image.Resampling[interpolation.upper()]
    expected = np.asarray(Image.fromarray(random_pixels(12, 20)).resize((8, 8), way))
    scaled = scale(random_pixels(12, 20), Preprocessing(8, **PLAIN, interpolation=interpolation))
    assert scaled.dtype == np.uint8
    np.testing.assert_array_equal(scaled, expected)


@pytest.mark.parametrize("turned", [False, True])
def test_crop_scales_the_short_side_and_takes_the_centre(turned: bool) -> None:
    image = random_pixels(30, 10) if turned else random_pixels(10, 30)
    scaled = Image.fromarray(image).resize((5, 15) if turned else (15, 5), Image.Resampling.BICUBIC)
    expected = np.asarray(scaled.crop((0, 5, 5, 10) if turned else (5, 0, 10, 5)))
    np.testing.assert_array_equal(scale(image, Preprocessing(5, **PLAIN, resize="crop")), expected)


@pytest.mark.parametrize("wrong", [{"size": 0}, {"resize": "stretch"}, {"interpolation": "nearest"}, {"flip": 2.0}])
def test_preprocessing_refuses_what_it_does_not_know(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        Preprocessing(**{"size": 8, **PLAIN, **wrong})


@pytest.mark.parametrize("suffix", ["heic", "avif"])
def test_photos_of_phones_are_read(tmp_path, suffix):
    import pillow_heif

    pillow_heif.register_heif_opener()
    path = tmp_path / f"photo.{suffix}"
    Image.new("RGB", (64, 32), (200, 30, 30)).save(path, quality=90)
    pixels = decode(path)
    assert pixels.shape == (32, 64, 3)
    assert np.abs(pixels.astype(int) - (200, 30, 30)).max() < 12


def test_without_the_extra_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr("onepair.data.images.decode._formats", lambda: FORMATS)
    with pytest.raises(
        DataError, match=r"cannot be read; install with: pip install 'onepair\[heif\]', or save it as JPEG"
    ):
        decode(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
