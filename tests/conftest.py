"""What holds for all tests."""

import os

import pytest
from hypothesis import settings

from tests.servers import alone, endpoint, moto, s3, shelf  # noqa: F401 (fixtures)

# A busy machine is no failure; and where changes are judged, all are judged by the same examples. Many more are the
# business of `tests/campaigns`.
settings.register_profile("patient", deadline=None, max_examples=40, derandomize=os.environ.get("CI") == "true")
settings.load_profile("patient")


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """The tiny dataset's CSV file; tests only read it."""
    from tests.training.tiny import write_images  # torch, which not every test needs

    return write_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A cache of features that all tests share."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def searched(images, cache, tmp_path_factory):
    """A study with a search, and what came of its table; tests only read it."""
    from tests.experiments.small import TABLE, make_study

    study = make_study(images, tmp_path_factory.mktemp("searched"), cache, search=True)
    return study, study.run(TABLE)


@pytest.fixture
def study(images, cache, tmp_path):
    """Make a study on the tiny dataset, in a folder of the test's own."""
    from tests.experiments.small import make_study

    def make(*, out="out", source=images, **options):
        return make_study(source, tmp_path / out, cache, **options)

    return make
