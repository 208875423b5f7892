import pytest

from tests.experiments.small import make_study


@pytest.fixture
def study(images, cache, tmp_path):
    """Make a study on the tiny dataset, in a folder of the test's own."""

    def make(*, out="out", source=images, **options):
        return make_study(source, tmp_path / out, cache, **options)

    return make
