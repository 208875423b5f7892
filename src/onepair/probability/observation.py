"""How labels came to be known: recognised from the labels themselves, or named, and what follows for unknown ones.

Where not all labels are known, what can be said of the others rests on how the known ones were chosen. One model holds
all the ways: a positive of class l is observed with a chance ρ_l, a negative with a chance η_l; a row may moreover show
some of its positives drawn at random, at least one; and a cell may be free, so that nothing follows from whether it is
known: its row was looked at in full or by a list of classes, or it was asked for because a model suggested it.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from onepair.errors import ConfigError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, validate_labels
from onepair.metrics import Floats

Process = Literal["auto", "single-positive", "few-positives", "positives-at-random", "at-random", "regardless"]
Mask = NDArray[np.bool_]
Counts = NDArray[np.intp]

_NEARLY_ALL = 0.98  # of the rows show a positive where some are drawn in every row
_MOSTLY_ONE = 0.75  # of them show no more than one where one is drawn, and others are known besides
_EXPECTED_MORE = 10  # rows that would show one positive more than any row does, were there no limit
_PILED_UP = 1.2  # times as many rows as a smooth fall would have
_FEWEST_OF_A_LIST, _SHARE_OF_A_LIST = 10, 0.02  # rows that were looked at by the same list of classes
_CLEAREST = 6.0  # beyond this logit nothing shows more clearly
_BLOCK = 2**15  # cells that the posterior is computed of at once: what is made of them stays in a core's cache


def _rule(number: int) -> tuple[Floats, Floats]:
    """Nodes and weights of Gauss and Legendre's rule for an integral from 0 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(number)
    return nodes / 2 + 0.5, weights / 2


_NODES = _rule(8)  # where it is not exact it errs by less than 1e-4


class Rates(NamedTuple):
    """The chances to be observed, of those labels that are not drawn for their rows."""

    positive: Floats  # (L,), ρ, of positives that were as likely as not
    negative: Floats  # (L,), η
    stop: Floats  # (k+1,): the chance of a row that shows so many (0 … k) to have been allowed no more; the last is 1
    salience: float = 0.0  # κ: the odds of a positive to be observed grow as its own odds to this power

    def seen(self, chance: Floats) -> Floats:
        """The chance of cells (N, L), were they positive, to be observed."""
        if self.salience == 0:
            return np.broadcast_to(self.positive, chance.shape)
        with np.errstate(divide="ignore"):
            observed: Floats = expit(logit(self.positive) + self.salience * clearness(chance))
        return observed


def clearness(chance: Floats) -> Floats:
    """How clearly labels show by their probabilities: logits, within bounds."""
    found: Floats = np.clip(logit(np.clip(chance, 1e-9, 1 - 1e-9)), -_CLEAREST, _CLEAREST)
    return found


class Explanation(NamedTuple):
    """What known labels say of the others in their rows, by some probabilities and rates."""

    posterior: Floats  # (N, L), the probability of every cell to be positive, given what is known of its row
    stopped: Floats  # (N,), the probability of a row to have been allowed to show no more than it does
    log_likelihood: Floats  # (N,), of what a row shows, if it is not an empty one that would not be among them
    seen: Floats  # (N,), the chance of a row to have a positive; 1 where rows without any are among them


@dataclass(frozen=True, eq=False)
class Observation:
    """How the labels of a matrix (N, L) came to be known."""

    sentence: str
    max_shown: int  # how many of its positives a row shows at most, drawn at random; 0: none is drawn
    ignorable: Mask  # (N, L), cells whose value has nothing to do with whether it is known
    asked: Mask  # (N, L), those of them that were asked for because a model suggested them
    has_empty_rows: bool = True  # whether rows without any positive are among them

    @property
    def assumption(self) -> str:
        return f"if {self.sentence}"

    def of(self, rows: NDArray[np.intp]) -> "Observation":
        """The same of some of the rows."""
        return replace(self, ignorable=self.ignorable[rows], asked=self.asked[rows])

    def posterior(self, probabilities: Floats, labels: Labels, rates: Rates) -> Floats:
        """The posterior of `explain` alone."""
        return self.explain(probabilities, labels, rates).posterior

    def explain(self, probabilities: Floats, labels: Labels, rates: Rates) -> Explanation:
        """What the known labels of every row say of its others.

            at random:  P(positive | unknown) = (1-ρ) p / ((1-ρ) p + (1-η) (1-p)),   logit ρ growing by κ logit p
            one drawn:  the m positives known of a row, and others with generating function
                        G(t) = Π_unknown ((1-η)(1-p) + (1-ρ) p t^w), have the likelihood ∫ t^(m-1) G(t) dt

        over t from 0 to 1, by Gauss and Legendre's rule; w = (odds / odds of those shown)^κ is how much sooner a label
        is drawn than those shown, and for κ = 0 the likelihood is E[1/(m+K)] for K others. Rows that may show
        up to k have 1/C(n, m) in place of 1/n if they stopped at m, and no others if they did not; a row that shows
        nothing was not looked at, or is empty.

        Where no row is empty, the likelihood is that of a row given that it is not.

        Args:
            probabilities: (N, L), of each cell to be positive by its score alone, were its row any row.
            labels: (N, L).
            rates: the chances to be observed.
        """
        parts = [np.empty(labels.shape), *(np.empty(len(labels)) for _ in range(3))]
        size = max(1, _BLOCK // labels.shape[1])
        for rows in (slice(start, start + size) for start in range(0, len(labels), size)):
            block = self._explain(probabilities[rows], labels[rows], self.ignorable[rows], rates)
            for whole, part in zip(parts, block, strict=True):
                whole[rows] = part
        return Explanation(*parts)

    def _explain(self, chance: Floats, labels: Labels, free: Mask, rates: Rates) -> Explanation:
        unknown, positive = labels == UNKNOWN, labels == POSITIVE
        here = unknown & ~free
        found, stopped = np.where(unknown, chance, positive), np.ones(len(labels))
        row, column = np.nonzero(~unknown)
        known = np.where(positive[row, column], chance[row, column], 1 - chance[row, column])
        observed = 1.0 if self.max_shown else rates.seen(chance)
        rate = np.where(positive, observed, np.maximum(rates.negative, 1e-12))[row, column]
        known = np.where(free[row, column], known, known * rate)
        likelihood: Floats = np.bincount(row, _log(known), len(labels)).astype(np.float64)
        shown, beside = (positive & ~free).sum(1), (positive & free).sum(1).astype(np.float64)
        drawn = (shown > 0) & here.any(1) & (self.max_shown > 0)
        for rows in (np.flatnonzero(drawn), np.flatnonzero(~drawn)):
            if len(rows) == 0:
                continue
            observed = rates.positive if self.max_shown else rates.seen(chance[rows])
            hidden, absent = chance[rows] * (1 - observed), (1 - chance[rows]) * (1 - rates.negative)
            if drawn[rows[0]]:
                sooner: Floats | None = None
                if rates.salience:
                    clear = clearness(chance[rows])
                    of_shown = (clear * (positive & ~free)[rows]).sum(1) / shown[rows]
                    sooner = np.exp(rates.salience * (clear - of_shown[:, None]))
                    beside[rows] = (sooner * (positive & free)[rows]).sum(1)
                of_unknown, stopped[rows], extra = _drawn_posterior(
                    hidden, absent, here[rows], shown[rows], beside[rows], self.max_shown, rates.stop, sooner
                )
            else:
                of_unknown, stopped[rows], extra = self._not_drawn(
                    hidden, absent, here[rows], shown[rows], beside[rows], rates.stop[0]
                )
            found[rows] = np.where(here[rows], of_unknown, found[rows])
            likelihood[rows] += extra
        seen = np.ones(len(labels))
        if not self.has_empty_rows:
            none = ~positive.any(1)  # is known to be positive, but some are
            some_positive = not_empty(found[none])
            found[none] = np.where(unknown[none], found[none] / some_positive[:, None], found[none])
            likelihood[none] += _log(some_positive)
            seen = not_empty(chance)
            likelihood -= _log(seen)
        return Explanation(found, stopped, likelihood, seen)

    def _not_drawn(
        self, hidden: Floats, absent: Floats, here: Mask, shown: Counts, beside: Floats, stop: float
    ) -> tuple[Floats, Floats, Floats]:
        """What `_drawn_posterior` returns, of rows that show nothing, or where none is drawn."""
        either = hidden + absent
        alone = np.divide(hidden, either, out=np.zeros_like(hidden), where=either > 0)
        stopped, likelihood = np.ones(len(here)), np.zeros(len(here))
        bare = (shown == 0) & here.any(1)
        likelihood[bare] = _log(np.where(here[bare], either[bare], 1.0)).sum(1)
        if self.max_shown:
            bare &= beside == 0
            stopped[bare], extra = self._nothing_shown(np.where(here[bare], alone[bare], 0), stop)
            alone[bare] *= stopped[bare][:, None]
            likelihood[bare] += extra
        return alone, stopped, likelihood

    def _nothing_shown(self, alone: Floats, stop: float) -> tuple[Floats, Floats]:
        """Whether rows that show nothing, with probabilities `alone` (n, L) of what is unknown, were not looked at, and
        what that adds to their log likelihood. A row that was looked at is empty.
        """
        looked_at = (1 - stop) * (1 - alone).prod(1) * self.has_empty_rows
        stopped = np.divide(stop, stop + looked_at, out=np.ones(len(alone)), where=stop + looked_at > 0)
        return stopped, _log(stop + looked_at)

    def hide(self, labels: Labels, probabilities: Floats, rates: Rates, random: np.random.Generator) -> Labels:
        """Full labels (M, L) of other rows with those unknown that would be in rows that are not looked at in full."""
        observed = rates.positive if self.max_shown else rates.seen(probabilities)
        kept = random.random(labels.shape) < np.where(labels == POSITIVE, observed, rates.negative)
        if self.max_shown:
            allowed = (random.random((len(labels), self.max_shown + 1)) >= rates.stop).cumprod(1).sum(1)
            later = random.exponential(size=labels.shape) * np.exp(-rates.salience * clearness(probabilities))
            order = np.argsort(np.where(labels == POSITIVE, later, np.inf), axis=1)
            rank = np.argsort(order, axis=1)
            kept |= (labels == POSITIVE) & (rank < allowed[:, None])
        return np.where(kept, labels, UNKNOWN).astype(np.int8)


def not_empty(probabilities: Floats) -> Floats:
    """The chance (N,) of rows to have a positive, by the probabilities (N, L) of their cells."""
    chance: Floats = np.maximum(-np.expm1(np.log1p(-np.minimum(probabilities, 1 - 1e-12)).sum(1)), 1e-12)
    return chance


def _log(values: Floats) -> Floats:
    logarithm: Floats = np.log(np.maximum(values, 1e-300))
    return logarithm


def _drawn_posterior(
    hidden: Floats,
    absent: Floats,
    unknown: Mask,
    shown: Counts,
    beside: Floats,
    most: int,
    stop: Floats,
    sooner: Floats | None,
) -> tuple[Floats, Floats, Floats]:
    """Of rows that show so many positives and have so many `beside`: the posterior (n, L), whether they stopped, and
    the log likelihood of what they do not show.
    """
    hidden = np.where(unknown, hidden, 0.0).T.copy()  # (L, n): products over labels are then those of whole rows
    absent = np.maximum(np.where(unknown, absent, 1.0), 1e-300).T.copy()
    stops = stop[np.minimum(shown, most)]
    complete = (1 - stops) * (beside == 0) * absent.prod(0) if most > 1 else np.zeros(len(shown))
    whole, with_it, share = np.zeros(len(shown)), np.zeros(hidden.shape), np.empty(hidden.shape)
    powers = None if sooner is None else sooner.T.copy()
    for at, weight in zip(*_NODES, strict=True):
        left = at if powers is None else np.exp(np.log(at) * powers)
        np.add(np.multiply(hidden, left, out=share), absent, out=share)
        if most == 1:
            likelihood = weight * at ** (shown + beside - 1)
        else:
            likelihood = weight * stops * shown * at**beside * (1 - at) ** (shown - 1)
        term = share.prod(0) * likelihood
        whole += term
        with_it += np.divide(term * left, share, out=share)
    either = whole + complete
    some = np.where(either > 0, either, np.inf)
    posterior = np.minimum(hidden * with_it / some, 1.0).T
    return posterior, np.where(either > 0, whole / some, 1.0), _log(either)


def recognise(labels: ArrayLike, asked: ArrayLike | None = None, process: Process = "auto") -> Observation:
    """How labels came to be known.

    Args:
        labels: (N, L).
        asked: (N, L), true for cells that are known because a model suggested to ask for them.
        process: "single-positive", each row shows one of its positives, other labels perhaps at random;
            "few-positives", up to as many as the fullest row; "positives-at-random", any positive with a chance of its
            class, negatives only for reasons of their own; "at-random", positives and negatives, each with a chance of
            their class; "regardless", a label is known or not whatever it is; "auto", what the labels look like.

    >>> recognise([[1, -1], [-1, 1], [-1, 1]]).sentence
    'each image shows one of its positives, clear ones sooner'
    """
    if process not in get_args(Process):
        raise ConfigError(f"there is no process {process!r}; choose from {', '.join(get_args(Process))}")
    matrix = validate_labels(labels)
    known = matrix != UNKNOWN
    suggested = np.zeros(known.shape, bool) if asked is None else np.asarray(asked, bool)
    if suggested.shape != known.shape:
        raise ValueError(f"asked and labels must have one shape, got {suggested.shape} and {known.shape}")
    suggested = suggested & known
    given = known & ~suggested
    in_full, by_list = _looked_at(given, (matrix == NEGATIVE) & given)
    free = suggested.copy()
    free[in_full | by_list] = True
    if process == "regardless":
        free[:] = True
    if process == "positives-at-random":
        free |= matrix == NEGATIVE
    shown = ((matrix == POSITIVE) & ~free).sum(1)
    negatives = bool(((matrix == NEGATIVE) & ~free).any())
    unknown = bool((~free & ~known).any())
    drawn = _drawn(shown[~(in_full | by_list)], process, negatives=negatives) if unknown else 0  # of all, none is drawn
    has_positive = (matrix == POSITIVE).any(1)
    empty = drawn == 0 or not (has_positive[in_full].all() and has_positive[~(in_full | by_list)].mean() >= _NEARLY_ALL)
    sentence = _sentence(drawn, bool(shown.any()), negatives, unknown, process, bool(by_list.any()))
    for number, words in (
        (int(in_full.sum()) * unknown, "images are labelled in full"),
        (int(suggested.sum()), "labels were asked for"),
    ):
        sentence += f"; {number:,} {words}" if number else ""
    return Observation(sentence, drawn, free, suggested, empty)


def _looked_at(given: Mask, negative: Mask) -> tuple[Mask, Mask]:
    """Rows (N,) that were looked at in full, and rows by one of a few lists of classes.

    Rows that are known in full by chance, as some are where most labels are, say as much of the chances to be observed
    as all others: those looked at in full are more than that. Where none of them shows a negative, they are rows with
    every label, all of which happen to be shown: labels that come together are shown together, too.
    """
    full: Mask = np.asarray(given.all(1))
    by_chance = len(full) * given.mean(0).prod()
    in_full: Mask = np.asarray(full & bool(negative[full].any()) & (full.sum() > 2 * by_chance + 2))
    by_list: Mask = np.zeros(len(full), bool)
    rows = np.flatnonzero(~in_full & negative.any(1) & (given.sum(1) >= 2))
    if len(rows) == 0:
        return in_full, by_list
    _, pattern = np.unique(np.packbits(given, axis=1), axis=0, return_inverse=True)
    counts = np.bincount(np.ravel(pattern)[rows])  # a list is one because negatives are known by it
    often = np.flatnonzero(counts >= max(_FEWEST_OF_A_LIST, _SHARE_OF_A_LIST * len(rows)))
    # Lists are few. Known cells that have nothing to do with each other come in all combinations.
    few = 2 * _entropy(counts / len(rows)) < sum(_entropy(np.array([p, 1 - p])) for p in given[rows].mean(0))
    if counts.max() == len(rows):  # a single list, of which all rows together can tell
        few = len(rows) > 2 * len(full) * given.mean(0)[given[rows[0]]].prod() + 2
    if few:
        by_list = ~in_full & np.isin(np.ravel(pattern), often)
    return in_full, by_list


def _entropy(shares: Floats) -> float:
    return float(-(shares * np.log2(np.maximum(shares, 1e-300))).sum())


def _drawn(shown: Counts, process: Process, *, negatives: bool) -> int:
    """How many positives are drawn in every row at most, from how many each shows."""
    most = int(shown.max(initial=0))
    if process in ("single-positive", "few-positives"):
        return min(most, 1) if process == "single-positive" else most
    if process != "auto" or most == 0:
        return 0
    if _is_limit(shown, most):
        return most
    mostly_one = (shown > 0).mean() >= _NEARLY_ALL and (shown == 1).mean() >= _MOSTLY_ONE
    # Where negatives are known, so are other positives, at random; where none is, a row shows as many as it may.
    return (1 if negatives else most) * int(mostly_one)


def _is_limit(shown: Counts, most: int) -> bool:
    """Whether rows stop at this number although some would have more: numbers fall off smoothly otherwise.

    Where some rows show nothing, as they do where positives are observed at random, this number may well be the last
    step of such a fall, unless far more rows show it than Poisson's would.
    """
    before, fewer, last = ((shown == number).sum() for number in (most - 2, most - 1, most))
    fallen = fewer if most == 1 else (1 - 1 / most) * fewer**2 / max(before, 1)
    piled_up = (most > 1 and (shown > 0).mean() >= _NEARLY_ALL) or last >= _PILED_UP * fallen
    return bool(piled_up and last**2 >= _EXPECTED_MORE * max(fewer, 1))


def _sentence(drawn: int, positives: bool, negatives: bool, unknown: bool, process: Process, by_list: bool) -> str:
    if drawn:
        number = "one" if drawn == 1 else f"up to {drawn}"
        others = ", and negatives are labelled at random" if negatives else ""
        return f"each image shows {number} of its positives, clear ones sooner{others}"
    if process == "regardless" or by_list:
        return "whether a label is known has nothing to do with what it is"
    if not unknown:
        return "all labels are known"
    if positives and not negatives:
        return "some positives of a class are labelled, clear ones sooner, and no negatives"
    return "positives and negatives of a class are labelled at random, each at a rate of their own"
