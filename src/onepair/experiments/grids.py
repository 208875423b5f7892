"""What `--search grid` tries for each method: the values of the paper and of the compared works, and around them."""

from collections.abc import Mapping

from onepair.experiments.records import Grid

LEARNING_RATES = {"linear": (1.0, 10 / 3), "finetune": (0.3, 1.0, 3.0)}  # times that of the last stage's settings
SLOW_LEARNING_RATES = {**LEARNING_RATES, "linear": (1 / 3, 1.0)}
SLOW = ("gr",)  # methods that pull unknown labels up from the first step on, and go too far where steps are large

_TILDE: Grid = {"alpha": (0.1, 0.4, 0.7), "beta": (0.4, 0.7, 0.9)}
_DELTA: Grid = {"delta": (5e-4, 2e-3, 5e-3)}

GRIDS: Mapping[str, Grid] = {  # methods that are not here have nothing to choose but the learning rate
    "bce-l1": {"weight": (1e-6, 1e-5, 1e-4)},
    "bce-l2": {"weight": (1e-5, 1e-4, 1e-3)},
    "focal": {"alpha": (0.25, 0.5)},  # 0.5 weighs positives and negatives alike
    "asl": {"gamma_positive": (0.0, 1.0)},
    "ll-r": _DELTA,
    "ll-r-boostlu": _DELTA,
    "ll-ct": _DELTA,
    "ll-cp": _DELTA,
    "entmax": {"entropy_weight": (0.1, 0.2, 0.4)},
    "entmax-apl": {"entropy_weight": (0.1, 0.2, 0.4), "weight": (0.02, 0.2)},
    "gr": {"last_slope": (2.0, 10.0), "last_shift": (-8.0, -2.0)},
    "crisp": {"warmup": (1, 3, 5)},
    "hill": {"turn": (1.5, 2.0)},
    "splc": {"threshold": (0.6, 0.8)},
    "p-asl": {"left_out": (0.5, 5.0), "gamma_unknown": (2.0, 4.0)},
    "two-way": {"positive_temperature": (1.0, 4.0)},
    "mime": {"threshold": (0.5, 0.8, 0.95)},
    "opml": _TILDE,
    "opml-hr": _TILDE,
    "opml-soft": {**_TILDE, "gamma_gradient": (False, True)},
    "opml-correct": {**_TILDE, "label_num": (0.8, 1.6)},
    "opml-sp": {**_TILDE, "gamma_gradient": (False, True), "label_num": (0.8, 1.6)},
}


def grid_of(method: str, *, mode: str, lr: float) -> Grid:
    """All that is searched for a method whose learning rate is `lr` by default.

    >>> grid_of("asl", mode="linear", lr=3e-4)
    {'gamma_positive': (0.0, 1.0), 'lr': (0.0003, 0.001)}
    """
    factors = (SLOW_LEARNING_RATES if method in SLOW else LEARNING_RATES)[mode]
    rates = tuple(float(f"{factor * lr:.2g}") for factor in factors)
    return {**GRIDS.get(method, {}), "lr": rates}
