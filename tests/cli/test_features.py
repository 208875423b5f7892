import numpy as np
import pytest
import safetensors.torch
import timm
from PIL import Image


@pytest.fixture
def onepair(in_process, monkeypatch, tmp_path):
    """The command in the folder of the test, and its cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return in_process


def test_features_are_extracted_once(tmp_path, onepair):
    for i in range(3):
        Image.new("RGB", (40, 40), (90 * i, 0, 0)).save(tmp_path / f"{i}.png")
    (tmp_path / "labels.csv").write_text("file,red\n0.png,0\n1.png,1\n2.png,1\n")
    safetensors.torch.save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "weights.safetensors")
    command = ("features", "labels.csv", "--backbone", "test_resnet", "--weights", "weights.safetensors")
    first, again = (onepair(*command) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert "of 3 images" in first.stderr
    folder, _, what = first.stdout.strip().partition(": ")
    assert what == "3 images new, 0 there before"
    assert folder.startswith(str(tmp_path))
    assert again.stdout == f"{folder}: 0 images new, 3 there before\n"
    assert "images" not in again.stderr

    (tmp_path / "3.png").write_bytes(b"torn")
    with (tmp_path / "labels.csv").open("a") as file:
        file.write("3.png,1\n")
    more = onepair(*command, "--out", "features.npy")
    assert more.returncode == 0, more.stderr
    assert more.stdout.splitlines()[1] == "features.npy: 4 images × 96 features, float16"
    assert "1 image could not be read" in more.stderr
    assert np.isnan(np.load(tmp_path / "features.npy")).all(axis=1).tolist() == [False, False, False, True]


def test_mistakes_end_in_a_sentence(onepair):
    for arguments, sentence in (
        (("digits", "--backbone", "resnet5"), "there is no backbone 'resnet5'; did you mean"),
        (("digits", "--backbone", "test_resnet", "--weights", "gone.pth"), "gone.pth: no such file"),
        (("nowhere",), "nowhere: there is no such file or folder"),
        (("digits", "--out", "a.txt"), "a.txt: features are written as .npy"),
    ):
        result = onepair("features", *arguments)
        assert result.returncode == 2
        assert sentence in result.stderr
        assert "Traceback" not in result.stderr


def test_datasets_are_listed(onepair):
    result = onepair("datasets")
    assert result.returncode == 0
    for name in ("table", "coco", "voc", "nuswide", "cub", "digits"):
        assert name in result.stdout
