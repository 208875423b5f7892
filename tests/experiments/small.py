"""A study on the tiny dataset, whose runs take moments."""

from onepair.experiments.overrides import Overrides, parse_dataset
from onepair.experiments.records import Experiment, Row
from onepair.experiments.study import Study
from onepair.runs.config import parse_setting
from onepair.training.hardware import Machine, Silence
from tests.training.tiny import SIZE

SETTINGS = (f"model.image_size={SIZE}", "linear.batch_size=8", "linear.optimiser.weight_decay=0.0")
OVERRIDES = Overrides(mode="linear", backbone="small-cnn", epochs=2, others=[parse_setting(text) for text in SETTINGS])
ARGUMENTS = [
    *("--mode", "linear", "--backbone", "small-cnn", "--epochs", "2"),
    *(part for setting in SETTINGS for part in ("--set", setting)),
]
BCE, OPML = Row("BCE", "bce"), Row("OPML", "opml")
TABLE = Experiment(name="table3", title="A table", caption="Two rows.", rows=(BCE, OPML))


class Notes(Silence):
    """A narrator that takes down which runs are done."""

    def __init__(self):
        self.begun = []
        self.ended = []
        self.waited = 0

    def stage(self, title, *, runs):
        pass

    def started(self, run):
        self.begun.append(run.name)

    def finished(self, run):
        self.ended.append(run.name)

    def waiting(self, runs):
        self.waited += 1


def make_study(source, out, cache, *, seeds=2, search=False, overrides=OVERRIDES, methods=()):
    return Study(
        out,
        datasets=[parse_dataset(str(source))],
        overrides=overrides,
        seeds=seeds,
        search=search,
        methods=methods,
        machine=Machine(accelerator="cpu", devices=1, workers=0, cache=cache),
        watch=Notes(),
    )
