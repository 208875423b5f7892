"""A study on the tiny dataset, whose runs take moments."""

from onepair.experiments.records import Experiment, Overrides, Row, parse_dataset
from onepair.experiments.study import Study
from onepair.runs.config import parse_setting
from onepair.training.callbacks import Callback
from onepair.training.hardware import Hardware
from tests.training.tiny import SIZE

SETTINGS = (f"model.image_size={SIZE}", "linear.batch_size=8", "linear.optimiser.weight_decay=0.0")
OVERRIDES = Overrides(mode="linear", backbone="small-cnn", epochs=2, others=[parse_setting(text) for text in SETTINGS])
ARGUMENTS = [
    *("--mode", "linear", "--backbone", "small-cnn", "--epochs", "2"),
    *(part for setting in SETTINGS for part in ("--set", setting)),
]
BCE, OPML = Row("BCE", "bce"), Row("OPML", "opml")
TABLE = Experiment(name="table3", title="A table", caption="Two rows.", rows=(BCE, OPML))


class Notes(Callback):
    """Takes down which runs are done."""

    def __init__(self):
        self.begun = []
        self.ended = []

    def on_run_start(self, name, title):
        self.begun.append(name)

    def on_run_end(self, name, title, validation_map):
        self.ended.append(name)


def make_study(source, out, cache, *, seeds=2, search=False, overrides=OVERRIDES, methods=()):
    return Study(
        out,
        datasets=[parse_dataset(str(source))],
        overrides=overrides,
        seeds=seeds,
        search=search,
        methods=methods,
        hardware=Hardware(accelerator="cpu", devices=1, workers=0, cache=cache),
        callbacks=[Notes()],
    )
