"""`Dataset`, `train`, `Run` and `Model`: the script of the documents on photos, vectors, texts and arrays."""

import gc
import os
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from PIL import Image

import onepair as op
from onepair.errors import DataError, OnepairError
from onepair.labels import POSITIVE, UNKNOWN

CLASSES = ["red", "green", "blue"]


def draw(row: int, truth: np.ndarray) -> Image.Image:
    """A grey picture with a bar of each colour that it shows."""
    pixels = np.random.default_rng(row).integers(90, 110, (24, 24, 3)).astype(np.uint8)
    for channel in np.flatnonzero(truth):
        pixels[8 * channel : 8 * channel + 8, :, channel] = 250
    return Image.fromarray(pixels)


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    random = np.random.default_rng(0)
    labels = (random.random((120, 3)) < 0.4).astype(np.int8)
    labels[~labels.any(1), 0] = 1
    return labels


@pytest.fixture(scope="module")
def observed(truth: np.ndarray) -> np.ndarray:
    return op.observe_positives(truth)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory, truth: np.ndarray) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for row, labels in enumerate(truth):
        draw(row, labels).save(folder / f"{row}.png")
    return folder


@pytest.fixture(scope="module")
def frame(observed: np.ndarray) -> pandas.DataFrame:
    names = [[CLASSES[i] for i in np.flatnonzero(row == POSITIVE)] for row in observed]
    return pandas.DataFrame({"photo": [f"{row}.png" for row in range(len(observed))], "tags": names, "note": "x"})


@pytest.fixture(scope="module")
def features(truth: np.ndarray) -> np.ndarray:
    return (truth + np.random.default_rng(1).normal(0, 0.4, truth.shape)).astype(np.float32)


def photo_data(frame: pandas.DataFrame, photos: Path) -> op.Dataset:
    return op.Dataset.from_frame(frame, file="photo", labels="tags", folder=photos)


SMALL = {"backbone": "small-cnn", "model.weights": "none", "model.image_size": 24, "progress": False}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, frame: pandas.DataFrame, photos: Path) -> op.Run:
    return op.train(photo_data(frame, photos), out=tmp_path_factory.mktemp("runs") / "a", **SMALL)


def test_a_frame_of_lists_becomes_a_dataset(frame: pandas.DataFrame, photos: Path, observed: np.ndarray) -> None:
    data = photo_data(frame, photos)
    order = [data.classes.index(name) for name in CLASSES]
    assert np.array_equal(data.labels[:, order], observed)
    assert len(data) == 120
    assert "120 images, 3 classes" in repr(data)
    assert "<td>red</td>" in data._repr_html_()
    assert data[:5].files == ("0.png", "1.png", "2.png", "3.png", "4.png")
    assert data.check() == []


def test_a_wide_frame_equals_the_table_in_a_file(tmp_path: Path, photos: Path, observed: np.ndarray) -> None:
    wide = pandas.DataFrame({"file": [f"{row}.png" for row in range(len(observed))]})
    for name, column in zip(CLASSES, observed.T, strict=True):
        wide[name] = np.where(column == UNKNOWN, np.nan, column)
    data = op.Dataset.from_frame(wide, folder=photos)
    wide.to_csv(photos / "labels.csv", index=False)
    read = op.Dataset.read(photos / "labels.csv")
    assert data.table.fingerprint() == read.table.fingerprint()
    pandas.testing.assert_frame_equal(data.to_frame(), read.to_frame())
    data.write(tmp_path / "written.csv")
    assert np.array_equal(op.Dataset.read(tmp_path / "written.csv").labels, data.labels)


def test_the_script_of_the_documents_on_photos(
    run: op.Run, photos: Path, frame: pandas.DataFrame, truth: np.ndarray, tmp_path: Path
) -> None:
    found = run.find()
    suggested = found.to_frame()
    assert list(suggested.columns) == ["file", "label", "probability", "kind"]
    assert suggested.probability.is_monotonic_decreasing
    first = suggested[suggested.kind == "missing"].head(20)
    right = [
        truth[int(Path(file).stem), CLASSES.index(label)] for file, label in zip(first.file, first.label, strict=True)
    ]
    assert np.mean(right) > 0.8  # of all unknown labels, less than a third are positive
    assert found.missing.loc["in all", "low"] <= found.missing.loc["in all", "high"]
    assert "<img" in found._repr_html_()
    assert (found.above(0.5).to_frame().probability >= 0.5).all()

    assert 0 <= run.evaluate("validation").estimated.map.value <= 1
    assert "0.9" in run.thresholds(precision=0.9).thresholds.rule

    file, label = suggested.file[0], suggested.label[0]
    run.answer(file, label, True)
    run.answer(suggested.file[1], suggested.label[1], False)
    assert run.answers.to_frame().answer.tolist() == ["yes", "no"]
    run.answer(file, label, False)
    run.answer(file, label, True)
    done = run.labels()
    column = done.classes.index(label)
    assert done.labels[done.files.index(file), column] == POSITIVE
    more = run.apply(found.above(0.5))
    assert (more.labels == POSITIVE).sum() > (done.labels == POSITIVE).sum()
    assert more.labels[more.files.index(suggested.file[1]), more.classes.index(suggested.label[1])] == 0

    model = op.load(run.path)
    paths = [photos / "0.png", photos / "1.png"]
    predicted = model.predict(paths).to_frame()
    assert predicted.columns.tolist() == ["file", "labels", *model.classes]
    pixels = np.stack([np.asarray(Image.open(path)) for path in paths])
    tensors = [__import__("torch").from_numpy(each).permute(2, 0, 1) for each in pixels]
    for other in (list(pixels), [Image.open(path) for path in paths], tensors):
        assert np.allclose(model.predict(other).to_frame()[CLASSES], predicted[CLASSES], atol=1e-6)
    saved = op.load(model.save(tmp_path / "m"))
    assert np.array_equal(saved.scores(paths), model.scores(paths))
    model.export(tmp_path / "m.onnx")
    assert np.allclose(op.load(tmp_path / "m.onnx").scores(paths), model.scores(paths), atol=1e-3)


def test_the_review_page_is_served_in_the_background(run: op.Run) -> None:
    before = set(threading.enumerate())
    page = run.review(port=0)
    with urllib.request.urlopen(page.url) as answer:  # noqa: S310 (our own address)
        assert answer.status == 200
    assert page.url in page._repr_html_()
    page.stop()
    page.stop()
    assert not [each.name for each in set(threading.enumerate()) - before if not each.name.startswith("AnyIO")]
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(page.url)  # noqa: S310


def test_the_command_line_goes_on_with_a_run_of_python(run: op.Run) -> None:
    before = run.find().to_frame()
    words = [sys.executable, "-m", "onepair", "find", str(run.path), "--no-maps"]
    done = subprocess.run(words, capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    written = pandas.read_csv(run.path / "finding" / "suggestions.csv")
    assert written.file.tolist() == before.file.tolist()
    assert written.label.tolist() == before.label.tolist()


def test_the_same_call_goes_on_and_other_data_are_refused(run: op.Run, frame: pandas.DataFrame, photos: Path) -> None:
    again = op.train(photo_data(frame, photos), out=run.path, **SMALL)
    assert again.results == run.results
    with pytest.raises(OnepairError, match="has changed"):
        op.train(photo_data(frame[:100], photos), out=run.path, **SMALL)


@pytest.mark.parametrize("form", ["array", "float64", "half", "sparse", "frame", "tensor", "mapped"])
def test_vectors_in_every_form(form: str, features: np.ndarray, observed: np.ndarray, tmp_path: Path) -> None:
    given: Any = features
    if form == "float64":
        given = features.astype(np.float64)
    elif form == "half":
        given = features.astype(np.float16)
    elif form == "sparse":
        from scipy.sparse import csr_array

        given = csr_array(features)
    elif form == "frame":
        given = pandas.DataFrame(features)
    elif form == "tensor":
        import torch

        given = torch.from_numpy(features)
    elif form == "mapped":
        np.save(tmp_path / "X.npy", features)
        given = np.load(tmp_path / "X.npy", mmap_mode="r")
    run = op.train(op.Dataset.from_arrays(given, observed, classes=CLASSES), out=tmp_path / "run")
    assert not (tmp_path / "run" / "vectors.npy").exists() or form != "mapped"
    reopened = op.Run(tmp_path / "run")
    pandas.testing.assert_frame_equal(reopened.find().to_frame(), run.find().to_frame())
    assert len(run.model.predict(given if form != "sparse" else features)) == 120


@pytest.mark.parametrize("unknown", [-1, np.nan, None])
def test_labels_in_every_form(unknown: Any, features: np.ndarray, observed: np.ndarray) -> None:
    given = [[unknown if value == UNKNOWN else int(value) for value in row] for row in observed]
    assert np.array_equal(op.Dataset.from_arrays(features, given).labels, observed)
    wide = pandas.DataFrame(given, columns=CLASSES)
    assert op.Dataset.from_arrays(features, wide).classes == tuple(CLASSES)


def test_texts(observed: np.ndarray, truth: np.ndarray) -> None:
    texts = [" ".join(["a picture of", *(CLASSES[i] for i in np.flatnonzero(row))]) for row in truth]
    run = op.train(op.Dataset.from_arrays(texts, observed, classes=CLASSES))
    assert set(run.find().to_frame().label) <= set(CLASSES)
    assert run.model.predict(["a picture of blue"])[0].file is None


def test_pictures_of_other_libraries(truth: np.ndarray, observed: np.ndarray, tmp_path: Path) -> None:
    class Pictures:
        """As a dataset of PyTorch."""

        def __len__(self) -> int:
            return 40

        def __getitem__(self, row: int) -> tuple[Image.Image, np.ndarray]:
            return draw(row, truth[row]), observed[row]

    data = op.Dataset.from_torch(Pictures(), classes=CLASSES)
    assert np.array_equal(data.labels, observed[:40])
    run = op.train(data, out=tmp_path / "run", **SMALL)
    assert len(run.find().files) == 40
    with pytest.raises(OnepairError, match="held in memory"):
        op.Run(run.path).find()
    assert len(op.Run(run.path, data=data).find().files) == 40
    assert op.Dataset.from_torch(Pictures(), targets=truth[:40]).labels.tolist() == truth[:40].tolist()


class Huggingface:
    """As far as we use them: the columns and features of `datasets.Dataset`."""

    class Names:
        names = CLASSES

    class List:
        def __init__(self, feature: Any) -> None:
            self.feature = feature

    def __init__(self, truth: np.ndarray, kind: str) -> None:
        self.truth, self.kind = truth, kind
        self.column_names = ["image", "objects"]
        lists = [np.flatnonzero(row).tolist() for row in truth]
        self.lists: list[Any] = lists
        feature: Any = self.List(self.Names())
        if kind == "names":
            self.lists, feature = [[CLASSES[i] for i in row] for row in lists], None
        elif kind == "objects":
            self.lists, feature = [{"category": row, "bbox": []} for row in lists], {"category": feature}
        self.features = {"objects": feature}

    def __len__(self) -> int:
        return len(self.truth)

    def __getitem__(self, key: Any) -> Any:
        return self.lists if key == "objects" else {"image": draw(key, self.truth[key])}


@pytest.mark.parametrize("kind", ["numbers", "names", "objects"])
def test_datasets_of_hugging_face(kind: str, truth: np.ndarray) -> None:
    data = op.Dataset.from_hf(Huggingface(truth[:30], kind), image="image", labels="objects")
    order = [data.classes.index(name) for name in CLASSES]
    assert np.array_equal(data.labels[:, order] == POSITIVE, truth[:30] == POSITIVE)
    assert data.table.pixels[3].shape == (24, 24, 3)
    assert data[5:].table.pixels[0].tolist() == data.table.pixels[5].tolist()


def test_a_temporary_run_leaves_nothing_behind(features: np.ndarray, observed: np.ndarray) -> None:
    run = op.train(op.Dataset.from_arrays(features, observed))
    path = run.path
    assert (path / "results.json").exists()
    del run
    gc.collect()
    assert not path.exists()


def test_settings_are_keywords(features: np.ndarray, observed: np.ndarray) -> None:
    data = op.Dataset.from_arrays(features, observed)
    run = op.train(data, method="bce", linear={"penalty": 2.0}, seed=3)
    assert (run.config.method.name, run.config.linear.penalty, run.config.seed) == ("bce", 2.0, 3)
    with pytest.raises(OnepairError, match=r"linear\.penalty"):
        op.train(data, **{"linear.penalti": 1.0})


def test_observing_and_fixing(truth: np.ndarray, features: np.ndarray, observed: np.ndarray) -> None:
    data = op.Dataset.from_arrays(features, truth, classes=CLASSES)
    assert np.array_equal(data.observe().labels, observed)
    with pytest.raises(DataError, match="every training label must be known"):
        data.observe().observe()
    twice = op.Dataset.from_arrays(features, truth, classes=["dog", "Dog", "cat"])
    assert twice.fix().classes == ("dog", "cat") or twice.fix().classes == ("Dog", "cat")


def test_bad_input_is_one_sentence(frame: pandas.DataFrame, photos: Path, features: np.ndarray) -> None:
    twice = pandas.concat([frame, frame[["tags"]]], axis=1)
    three = np.ones((120, 3))
    cases: list[tuple[Any, str]] = [
        (lambda: op.Dataset.from_frame(frame, file="fil", labels="tags"), "no column 'fil'"),
        (lambda: op.Dataset.from_frame(twice, file="photo", labels="tags"), "2 columns 'tags'"),
        (lambda: op.Dataset.from_arrays(features[:10], three), "labels of 120"),
        (lambda: op.Dataset.from_arrays(features, three, classes=["a", "a", "b"]), "'a' is there twice"),
        (lambda: op.Dataset.from_arrays(features, three, classes=["a"]), "1 classes are named|1 class"),
        (lambda: op.Dataset.from_arrays(features, three * 7), "row 0, column 0 holds 7"),
        (lambda: op.Dataset.from_arrays(features[0], three), "matrix of numbers"),
        (lambda: op.Dataset.from_arrays(features, three, split=["dev"] * 120), "split 'dev'"),
        (lambda: op.Dataset.from_hf(Huggingface(three[:2], "names"), labels="tags"), "no column 'tags'"),
        (lambda: op.Dataset.read(photos / "none.csv"), "no such file"),
        (lambda: op.Run(photos), "no finished run|holds"),
    ]
    for call, sentence in cases:
        with pytest.raises(OnepairError, match=sentence):
            call()


def test_importing_is_quick_and_torch_waits() -> None:
    code = "import sys, onepair; onepair.Dataset; print('torch' in sys.modules)"
    environment = {**os.environ}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "False"
