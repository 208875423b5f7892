import pytest

from tests.experiments.small import TABLE, make_study


@pytest.fixture(scope="session")
def searched(images, cache, tmp_path_factory):
    """A study with a search, and what came of its table; tests only read it."""
    study = make_study(images, tmp_path_factory.mktemp("searched"), cache, search=True)
    return study, study.run(TABLE)


@pytest.fixture
def study(images, cache, tmp_path):
    """Make a study on the tiny dataset, in a folder of the test's own."""

    def make(*, out="out", source=images, **options):
        return make_study(source, tmp_path / out, cache, **options)

    return make
