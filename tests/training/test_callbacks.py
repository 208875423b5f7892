"""What a program is told while a run goes on: messages by `logging`, everything else by callbacks."""

import logging
import subprocess
import sys

import onepair
from onepair.training.callbacks import ProgressCallback
from tests.training.tiny import Listener, train_tiny, write_images


class Hooks(Listener):
    """Takes down the order of the hooks."""

    def __init__(self):
        super().__init__()
        self.called = []

    def on_stage_start(self, stage):
        self.called.append(f"start {stage}")

    def on_stage_end(self, stage):
        self.called.append(f"end {stage}")

    def on_epoch_end(self, record):
        super().on_epoch_end(record)
        self.called.append(f"epoch {record['epoch']}")

    def on_progress(self, what, done, total):
        if done == total:
            self.called.append(what)

    def on_problem(self, problem):
        self.called.append(problem.kind)


def test_hooks_come_in_order(tmp_path):
    (tmp_path / "images").mkdir()
    source, hooks = write_images(tmp_path / "images"), Hooks()
    (tmp_path / "images" / "00.png").write_bytes(b"no image")
    train_tiny(source, "linear.epochs=2", out=tmp_path / "run", cache=tmp_path / "cache", listener=hooks)
    assert hooks.called == [
        "extracting features",
        "unreadable image",
        "start linear",
        "epoch 1",
        "epoch 2",
        "end linear",
    ]
    assert isinstance(hooks, onepair.Callback)


def test_messages_are_shown_by_the_command_line_alone(capsys):
    logger = logging.getLogger("onepair.anything")
    logger.info("nobody asked")
    with ProgressCallback():
        logger.info("shown")
        logger.info("shown")
    logger.info("nobody asked")
    assert capsys.readouterr().err == "shown\n"


def test_python_is_quiet_unless_logging_is_asked_for():
    code = "import logging, onepair; {}logging.getLogger('onepair.a').info('heard')"
    for setup, heard in (("", ""), ("logging.basicConfig(level='INFO', format='%(message)s'); ", "heard\n")):
        done = subprocess.run([sys.executable, "-c", code.format(setup)], capture_output=True, text=True, check=True)
        assert done.stderr == heard
