import pytest

from tests.training.tiny import train_tiny


@pytest.fixture
def train(images, cache, tmp_path):
    """Do a run on the tiny dataset with settings as on the command line: what came of it."""

    def run(*settings, out="run", source=images, listener=None):
        return train_tiny(source, *settings, out=tmp_path / out, cache=cache, listener=listener)

    return run
