"""Commands on data at URLs, as a user runs them."""

import io
import tarfile

import pytest

from onepair.errors import EXTRAS
from onepair.review.retraining import planned_commands
from onepair.runs.finished import FinishedRun

pytestmark = pytest.mark.usefixtures("alone")

TRAIN = ("--mode", "linear", "--backbone", "small-cnn", "--set", "model.image_size=16")


@pytest.fixture
def bucket(s3, images):
    """The tiny dataset in a bucket, with an image that is missing and one that is cut."""
    objects = {f"data/{file.name}": file.read_bytes() for file in images.parent.iterdir()}
    del objects["data/03.png"]
    objects["data/04.png"] = objects["data/04.png"][:60]
    return s3(objects)


def test_a_run_on_a_bucket(bucket, in_process, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checked = in_process("check", f"{bucket}/data/labels.csv", "--decode")
    assert checked.returncode == 1
    assert f"labels.csv, line 5: no such file 03.png in {bucket}/data" in checked.stdout
    assert "04.png: cannot be read as an image" in checked.stdout
    trained = in_process("train", f"{bucket}/data/labels.csv", *TRAIN, "--out", "run")
    assert trained.returncode == 0, trained.stderr
    assert "2 images left out" in trained.stderr
    assert f'source = "{bucket}/data/labels.csv"' in (tmp_path / "run" / "config.toml").read_text()
    assert in_process("evaluate", "run").returncode == 0
    predicted = in_process("predict", "run", f"{bucket}/data", "--out", "predictions.csv")
    assert "44 images predicted" in predicted.stderr
    assert f"{bucket}/data/00.png," in (tmp_path / "predictions.csv").read_text()
    assert f"{bucket}/data/04.png," in (tmp_path / "predictions.skipped.csv").read_text()
    assert in_process("explain", "run", f"{bucket}/data/00.png").returncode == 0


def test_what_is_fixed_at_a_url_is_trained_on_as_it_says(bucket, in_process, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fixed = in_process("check", f"{bucket}/data/labels.csv", "--fix", "clean.csv")
    assert fixed.stdout.endswith(f"to train on it: onepair train clean.csv --folder {bucket}/data\n")
    trained = in_process("train", "clean.csv", "--folder", f"{bucket}/data", *TRAIN, "--out", "run")
    assert trained.returncode == 0, trained.stderr
    assert "left out" not in trained.stderr


def test_a_run_on_a_bucket_is_audited_and_its_labels_written(bucket, in_process, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert in_process("train", f"{bucket}/data/labels.csv", *TRAIN, "--out", "run").returncode == 0
    assert "sheet.csv has 3 images" in in_process("audit", "run", "--images", "3", "--sheet", "sheet.csv").stdout
    audited = in_process("audit", "run", "--images", "3", "--answers", "sheet.csv")
    assert "complete: 3 of 3 images" in audited.stdout, audited.stderr
    written = in_process("labels", "run", "--out", "completed.csv", "--as", "csv").stdout
    assert written.endswith(f"to train on it: onepair train completed.csv --folder {bucket}/data\n")
    assert f"\n{bucket}/data/00.png,train,1,0,1,1" in (tmp_path / "completed.csv").read_text().replace("\r", "")
    assert in_process("explain", "run", "0").returncode == 0
    for again in planned_commands(FinishedRun(tmp_path / "run"), tmp_path / "run-2"):
        done = in_process(*again.words)
        assert done.returncode == 0, done.stderr


def test_shards_in_a_bucket(s3, images, in_process, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for number in range(40):
            archive.add(images.parent / f"{number:02}.png", f"{number:02}.png")
            label = tarfile.TarInfo(f"{number:02}.cls")
            label.size = 1
            archive.addfile(label, io.BytesIO(b"%d" % (number % 2)))
    url = s3({"shards/train-0.tar": content.getvalue()})
    trained = in_process("train", f"{url}/shards/train-{{0..0}}.tar", *TRAIN, "--out", "run")
    assert trained.returncode == 0, trained.stderr
    assert "webdataset" in in_process("datasets").stdout
    image = f"{url}/shards/train-0.tar/07.png"
    assert f"\n{image}," in in_process("predict", "run", image).stdout
    predicted = in_process("predict", "run", f"{url}/shards/train-0.tar", "--out", "predictions.csv")
    assert "40 images predicted" in predicted.stderr
    assert f"\n{image}," in (tmp_path / "predictions.csv").read_text()
    gone = in_process("predict", "run", f"{url}/shards/train-0.tar/none.png")
    assert gone.stderr.endswith("train-0.tar/none.png: cannot be read, there is no such file or folder\n")


@pytest.mark.parametrize("option", ["--out", "--cache"])
def test_nothing_is_written_to_a_url(in_process, option):
    done = in_process("train", "digits", option, "s3://bucket/run")
    assert (done.returncode, done.stderr) == (
        2,
        f"onepair: s3://bucket/run: what {option} names is written on this machine, not at a URL; name a local path\n",
    )


@pytest.mark.parametrize("command", ["check", "train", "features"])
def test_a_bucket_that_is_not_there_is_a_sentence(s3, in_process, command):
    s3({})
    done = in_process(command, "s3://no-such-bucket/labels.csv")
    assert (done.returncode, done.stderr) == (2, "onepair: s3://no-such-bucket: there is no such bucket\n")


def test_the_extra_brings_what_reads_urls():
    assert "s3fs" in EXTRAS["remote"]
