"""The method of a run, as its configuration asks for it."""

from onepair.errors import ConfigError
from onepair.methods import METHODS, Method, create_method
from onepair.runs.config import Config


def knows_negatives(config: Config) -> bool:
    """Whether the method is the oracle that is shown all negatives, also where labels are hidden."""
    return METHODS[config.method.name].observes == "single positive and all negatives"


def _epochs(config: Config) -> int:
    """Those of all stages that have any."""
    solved = config.linear.protocol == "solve"
    return sum(stage.epochs for name, stage in config.stages.items() if not (name == "linear" and solved))


def method_of(config: Config) -> Method:
    """The method that a run with this configuration learns by."""
    name, options = config.method.name, config.method.options
    if name in METHODS:
        epochs = METHODS[name].rounds if config.solves else _epochs(config)
        options = {**METHODS[name].run_options(epochs=epochs, seed=config.seed), **options}
    try:
        return create_method(name, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"method: {error}") from None
