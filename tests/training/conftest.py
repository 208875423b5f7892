import pytest

from tests.training.tiny import train_tiny, write_images


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """The tiny dataset's CSV file; tests only read it."""
    return write_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A cache of features that all tests share."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def train(images, cache, tmp_path):
    """Do a run on the tiny dataset with settings as on the command line: what came of it."""

    def run(*settings, out="run", source=images, watch=None):
        return train_tiny(source, *settings, out=tmp_path / out, cache=cache, watch=watch)

    return run
