"""Settings of a run: frozen records that check themselves, one TOML file for all of them, and presets by dataset."""

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tomli_w
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import ErrorDetails

from onepair.data.images.decode import Augmentation
from onepair.data.label_table import TFIDF, VECTORS
from onepair.data.tables.cell_values import names_in
from onepair.errors import ConfigError
from onepair.files import migrate, read_stored
from onepair.labels import PUBLISHED_SEED
from onepair.probability.observation import Process

AUTO: Literal["auto"] = "auto"  # of what goes by what is there
_UNDER = "paper"  # lies under the presets of the paper's datasets, and is none itself
NOTHING = "none"  # how None is written in TOML, which has no word for it

CHECKED = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


def _or_nothing(value: Any) -> Any:
    return None if value == NOTHING else value


def _options(value: Any) -> Any:
    return {name: _or_nothing(option) for name, option in value.items()} if isinstance(value, Mapping) else value


def _names(value: Any) -> Any:
    """A list of names, which a command line gives as one text."""
    return tuple(names_in(value) or ()) if isinstance(value, str) else value


Switch = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Field(gt=0)]
Seed = Annotated[int, Strict(), Field(ge=0, lt=2**32)]
Above = Annotated[float, Strict(), Field(gt=0)]
AtLeast = Annotated[float, Strict(), Field(ge=0)]
Share = Annotated[float, Strict(), Field(gt=0, lt=1)]
OrNothing = BeforeValidator(_or_nothing)
Options = BeforeValidator(_options)
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Stage = Annotated[str, Field(coerce_numbers_to_str=True)]  # a stage may have a number for a name


def _penalty(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value != AUTO and not (number and 0 < value < math.inf):
        raise ValueError(f"linear.penalty must be a number above 0, or auto, got {value!r}")
    return value if value == AUTO else float(value)


@dataclass(frozen=True, config=CHECKED)
class OptimiserConfig:
    """How the weights move."""

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    """The optimiser: sgd, adam or adamw."""
    lr: Above = 1e-4
    """The learning rate."""
    momentum: AtLeast = 0.9
    """Momentum of sgd; the others have none to set."""
    weight_decay: AtLeast = 1e-3
    """Weight decay: how strongly weights are pulled towards 0."""
    schedule: Literal["constant", "cosine"] = "constant"
    """The learning rate schedule: constant, or cosine, which falls to 0 along half a cosine."""
    warmup_epochs: AtLeast = 0.0
    """Warm-up: epochs over which the learning rate grows from 0."""
    ema: Annotated[Share | None, OrNothing] = None
    """Decay per step of an exponential moving average of the weights, for example 0.999, which is evaluated; "none"
    averages nothing."""


@dataclass(frozen=True, config=CHECKED)
class LinearOptimiserConfig(OptimiserConfig):
    """How the classifier's weights move on fixed features."""

    name: Literal["sgd", "adam", "adamw"] = "adam"
    """The optimiser: sgd, adam or adamw."""
    lr: Above = 3e-4
    """The learning rate."""
    weight_decay: AtLeast = 0.0
    """Weight decay: how strongly weights are pulled towards 0."""


@dataclass(frozen=True, config=CHECKED)
class FinetuneOptimiserConfig(OptimiserConfig):
    """How all weights of a network move."""

    head_lr_multiplier: AtLeast = 10.0
    """The factor on the learning rate of the classifier, which learns beside the network."""


@dataclass(frozen=True, config=CHECKED)
class StageConfig:
    """One stage of training."""

    epochs: Count = 10
    """Epochs: passes over the training images."""
    batch_size: Count = 16
    """Batch size: images of a step, those of all processes together."""
    optimiser: OptimiserConfig = OptimiserConfig()
    """How the weights move."""


@dataclass(frozen=True, config=CHECKED)
class LinearConfig(StageConfig):
    """The stage that fits the classifier to fixed features."""

    protocol: Literal["solve", "epochs"] = "solve"
    """How: "solve", by a solver on all training images, with an L2 penalty; or "epochs", the published protocol, by
    epochs of an optimiser and the best of them on validation images."""
    head: Literal["linear", "kernel"] = "linear"
    """What is solved for on the features: "linear", one layer, or "kernel", the same on an RBF kernel between features
    and 2,000 training images, which bends; where protocol is "solve" and mode "linear"."""
    penalty: Annotated[float | Literal["auto"], BeforeValidator(_penalty)] = AUTO
    """The strength of the L2 penalty, 1 / C of OPMLClassifier, where protocol is "solve"; "auto" tries some and keeps
    the one with the highest estimated mAP, out of fold."""
    epochs: Count = 25
    """Epochs: passes over the training images, where protocol is "epochs"."""
    batch_size: Count = 16
    """Batch size: images of a step, where protocol is "epochs"."""
    optimiser: LinearOptimiserConfig = LinearOptimiserConfig()
    """How the weights move, where protocol is "epochs"."""


@dataclass(frozen=True, config=CHECKED)
class FinetuneConfig(StageConfig):
    """The stage that trains the whole network."""

    hold_norms: Switch = False
    """Whether batch norms keep the means and variances that they have, in place of those of every batch: for a
    pretrained network and small batches."""
    optimiser: FinetuneOptimiserConfig = FinetuneOptimiserConfig()
    """How the weights move."""


WITHOUT_IMAGES = {VECTORS: "data.features are vectors as they are", TFIDF: "backbone tfidf makes vectors of texts"}
OF_IMAGES = ("image_size", "augment", "train_from", "weights")  # settings of the model

_OF_EPOCHS = ("epochs", "batch_size", "optimiser")  # of the linear stage
STAGES: Mapping[str, Sequence[Literal["linear", "finetune"]]] = {  # by mode
    "linear": ("linear",),
    "finetune": ("finetune",),
    "linear-init": ("linear", "finetune"),
}


def parse_fold(fold: str) -> tuple[int, int]:
    """Which part of how many a fold holds out.

    >>> parse_fold("2/5")
    (2, 5)
    """
    numbers = [int(number) for number in fold.split("/") if number.isdecimal()]
    if fold.count("/") != 1 or len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1] or numbers[1] < 2:
        raise ConfigError(f"data.fold must be a part of two or more, as 2/5, got {fold!r}")
    return numbers[0], numbers[1]


def _fold(value: str | None) -> str | None:
    if value is not None:
        parse_fold(value)
    return value


Observe = Literal["given", "single-positive", "few-positives", "fraction", "most-frequent", "largest-object"]


@dataclass(frozen=True, config=CHECKED)
class DataConfig:
    """Which images and labels, and how many of the labels the learner gets to see."""

    source: str = ""
    """A path or URL, or "digits"."""
    format: str = "auto"
    """How it is laid out: see `onepair datasets`."""
    unlisted: Literal["unknown", "negative"] = "unknown"
    """What a label is that a list does not name, or whose cell is blank: unknown, or negative."""
    zeros: Literal["negative", "unknown"] = "negative"
    """What a 0 of a table is: negative, or unknown where it means no more than "not tagged"."""
    spellings: Literal["merge", "keep"] = "merge"
    """Names of classes of a table that differ in case, spaces, Unicode or an English plural: "merge" or "keep" them."""
    same: Names = ()
    """Names of classes that are another by another name, as hund=dog."""
    classes: Annotated[str | None, OrNothing] = None
    """A table of classes: name, same as, is a, not with."""
    images: Annotated[str | None, OrNothing] = None
    """The folder or URL of the images, where it is not that of the labels."""
    features: Annotated[str | None, OrNothing] = None
    """Vectors in place of images, a row for each of the table: a .npy, .npz or Parquet file, or a folder of shards."""
    label_columns: Names = ()
    """The columns of a table that hold labels, where they are not to be recognised."""
    complete_splits: Names = ()
    """Splits whose images are labelled in full: what their lists leave out is negative."""
    observe: Observe = "given"
    """What is seen of the labels of training images: all ("given"), one random positive of each ("single-positive"), up
    to `positives` of them ("few-positives"), the share `known` of all labels ("fraction"), the positive of the class
    with most images ("most-frequent"), or that of the largest object ("largest-object")."""
    positives: Count = 2
    """How many positives of an image are seen, where observe is "few-positives"."""
    known: Annotated[float, Strict(), Field(gt=0, le=1)] = 0.1
    """The share of labels that is seen, positive or negative, where observe is "fraction"."""
    boxes: Annotated[str | None, OrNothing] = None
    """A CSV of objects (file, class, xmin, ymin, xmax, ymax), where observe is "largest-object"."""
    process: Process = "auto"
    """How labels came to be known, where holes are to be counted: "single-positive" and "few-positives" (one or a few
    positives of each image), "positives-at-random", "at-random" (positives and negatives), "regardless" (of what they
    are), or "auto", which goes by the labels."""
    on_error: Literal["raise", "skip"] = "skip"
    """What to do about rows and images that cannot be read: "skip" them, or "raise" a sentence, as --strict does."""
    split: Literal["auto", "published", "stratified"] = "auto"
    """How validation images are chosen: "published", by the seed alone, as published results do; "stratified", so that
    every class keeps its share; "auto" is "published" where labels are hidden, else "stratified"."""
    seed: Seed = PUBLISHED_SEED
    """Random seed of the observed labels and of the validation split."""
    validation: Share = 0.2
    """The share of the training images to select by, where the dataset has no validation split and training has epochs;
    on fixed features all images train, and are judged out of fold."""
    fold: Annotated[str | None, OrNothing, AfterValidator(_fold)] = None
    """As 2/5: holds out the second of five parts of the training images, to test on."""

    @property
    def images_alone(self) -> "DataConfig":
        """The same for all runs on the same images, whichever labels they see and whichever fold they hold out."""
        return replace(self, observe="given", positives=1, known=1.0, boxes=None, fold=None)


@dataclass(frozen=True, config=CHECKED)
class ModelConfig:
    """Which network, and which part of it learns."""

    backbone: str = AUTO
    """A network of timm's, by name, or small-cnn; tfidf makes vectors of texts, and vectors are those given; "auto" is
    the best network whose weights are on this machine, or tfidf where rows are texts."""
    weights: str = AUTO
    """A file, "pretrained", "none" (random ones), or "auto": from a package if one has them, else downloaded."""
    image_size: Annotated[Count | None, OrNothing] = None
    """Image size in pixels; "none" is the size that the weights were trained with."""
    flip: Annotated[float, Strict(), Field(ge=0, le=1)] = 0.5
    """Probability of a horizontal flip: how often a training image is mirrored."""
    augment: Annotated[Augmentation | None, OrNothing] = None
    """Data augmentation in fine-tuning: "crop" takes a random part, half of the area or more; "strong"
    also changes its colours or geometry at random; "none" is what the published results have."""
    mode: Literal["linear", "finetune", "linear-init"] = "linear"
    """Which stages there are: "linear", the classifier on fixed features; "finetune", the whole network; or
    "linear-init", one after the other."""
    train_from: Annotated[Stage | None, OrNothing] = None
    """From where on the network learns in fine-tuning, as blocks.5 or layer4. What lies before is frozen and computed
    once, unless images are augmented; "none" is all of it."""


@dataclass(frozen=True, config=CHECKED)
class MethodConfig:
    """Which method, and the options that differ from its defaults."""

    name: str = "opml-plus"
    """See `onepair methods`."""
    options: Annotated[Mapping[str, Any], Options] = field(default_factory=dict)
    """Those of the method, by name; "none" is no value at all."""


@dataclass(frozen=True, config=CHECKED)
class Config:
    """All that decides the result of a run."""

    data: DataConfig = DataConfig()
    """Which images and labels."""
    model: ModelConfig = ModelConfig()
    """Which network."""
    method: MethodConfig = MethodConfig()
    """Which method."""
    linear: LinearConfig = LinearConfig()
    """The stage of mode linear, and the first one of linear-init."""
    finetune: FinetuneConfig = FinetuneConfig()
    """The stage of mode finetune, and the second one of linear-init."""
    seed: Seed = 0
    """Random seed of the first weights and of the order of batches."""
    precision: Literal["32-true", "16-mixed", "bf16-mixed"] = "32-true"
    """Floating-point precision: "32-true", or half precision where it suffices, "16-mixed" or "bf16-mixed"."""

    @property
    def stages(self) -> dict[str, StageConfig]:
        """What the mode trains, in order, by name.

        >>> list(Config(model=ModelConfig(mode="linear-init")).stages)
        ['linear', 'finetune']
        """
        return {name: getattr(self, name) for name in STAGES[self.model.mode]}

    @property
    def solves(self) -> bool:
        """Whether the classifier is solved for, on fixed features and all training images."""
        return self.model.mode == "linear" and self.linear.protocol == "solve"

    @property
    def last_stage(self) -> str:
        """The name of the stage that a run ends with, and is judged by."""
        return STAGES[self.model.mode][-1]


def _without_scaled(settings: dict[str, Any]) -> dict[str, Any]:
    """A linear stage of format 1 had epochs alone, and said whether its features were scaled."""
    linear = settings.get("linear")
    if not (isinstance(linear, dict) and "scaled" in linear):
        return settings
    kept = {key: value for key, value in linear.items() if key not in ("scaled", "penalty")}
    return {**settings, "linear": {"protocol": "epochs", **kept}}


MIGRATIONS = (_without_scaled,)  # of the settings of a run, from format 1 on
FORMAT = 1 + len(MIGRATIONS)


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, as nested dictionaries."""
    text = read_stored(path, error=ConfigError)
    if text is None:
        raise ConfigError(f"{path}: cannot be read (No such file or directory)")
    try:
        settings = tomllib.loads(text.removeprefix("\ufeff"))  # as some editors begin a file
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: is not TOML ({error})") from None
    return migrate(settings, MIGRATIONS, where=path, error=ConfigError)


def parse_setting(text: str) -> dict[str, Any]:
    """A setting from the command line, as "linear.optimiser.lr=0.01", as nested dictionaries.

    >>> parse_setting("method.options.alpha=0.7")
    {'method': {'options': {'alpha': 0.7}}}
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}: expected key=value, as linear.optimiser.lr=0.01")
    try:
        setting: Any = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        setting = value.strip()  # a word needs no quotes here
    return nested(key.strip(), setting)


def nested(key: str, value: Any) -> dict[str, Any]:
    """A setting by its full name, as nested dictionaries.

    >>> nested("data.known", 0.1)
    {'data': {'known': 0.1}}
    """
    first, dot, rest = key.partition(".")
    return {first: nested(rest, value) if dot else value}


def merge(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Nested dictionaries laid over each other; the later one wins."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            nested = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
            merged[key] = merge([merged[key], value]) if nested else value
    return merged


def _with_mode(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the backbone that given vectors stand for, and the mode that all vectors need, unless they say it.

    >>> _with_mode({"data": {"features": "clip.npy"}})["model"]
    {'mode': 'linear', 'backbone': 'vectors'}
    """
    data, model = settings.get("data"), settings.get("model", {})
    given = data.get("features") if isinstance(data, Mapping) else None
    if not isinstance(model, Mapping):
        return dict(settings)
    if given not in (None, "none"):
        model = {"backbone": VECTORS, **model}
    if model.get("backbone") in WITHOUT_IMAGES:
        model = {"mode": "linear", **model}
    return {**settings, "model": dict(model)} if model else dict(settings)


def resolve_config(*layers: Mapping[str, Any]) -> Config:
    """A checked configuration from settings of several origins, as a preset, a file, and a command line.

    The later ones win. A backbone from a later one does not take over the image size and weights of the earlier, nor
    one that takes no images anything about these.
    """
    settings: dict[str, Any] = {}
    for layer in map(_with_mode, layers):
        model = layer.get("model")
        if isinstance(model, Mapping) and "backbone" in model and isinstance(settings.get("model"), Mapping):
            dropped = ("image_size", "weights", *(OF_IMAGES if model["backbone"] in WITHOUT_IMAGES else ()))
            kept = {key: value for key, value in settings["model"].items() if key not in dropped}
            settings = {**settings, "model": kept}
        settings = merge([settings, layer])
    return build_config(settings)


def build_config(settings: Mapping[str, Any]) -> Config:
    """A checked configuration; an unknown key is refused with the nearest known one.

    >>> build_config({"data": {"source": "labels.csv", "features": "clip.npy"}}).model.backbone
    'vectors'
    """
    try:
        config = _CONFIG.validate_python(_with_mode(settings))
    except ValidationError as error:
        known = [setting.key for setting in all_settings()]
        raise ConfigError(_sentence(error.errors()[0], known)) from None
    if refusal := image_settings(flatten(config)) or _without_effect(config):
        raise ConfigError(refusal)
    return config


_RULES = {
    "bool_type": "be true or false",
    "int_type": "be a whole number",
    "float_type": "be a number",
    "string_type": "be text",
    "dict_type": "be a table",
    "literal_error": "be {expected}",
    "finite_number": "be a finite number",
    "greater_than": "be above {gt:g}",
    "greater_than_equal": "be {ge:g} or more",
    "less_than": "be below {lt:.10g}",
    "less_than_equal": "be {le:g} or less",
}


def _sentence(error: ErrorDetails, known: Sequence[str]) -> str:
    """One of pydantic's errors in our words, given the full names of all settings."""
    key, value, kind = ".".join(map(str, error["loc"])), error["input"], error["type"]
    if kind == "unexpected_keyword_argument":
        return _unknown(key, known)
    if kind == "dataclass_type":
        return f"{key} is a section of settings, got {value!r}"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    rule = _RULES.get(kind)
    return f"{key} must {rule.format(**error.get('ctx', {}))}, got {value!r}" if rule else f"{key}: {error['msg']}"


def _unknown(key: str, known: Sequence[str]) -> str:
    prefix, _, name = key.rpartition(".")
    inside = [other.removeprefix(f"{prefix}.") for other in known if not prefix or other.startswith(f"{prefix}.")]
    names = list(dict.fromkeys(other.partition(".")[0] for other in inside))  # of this section
    near = [f"{prefix}.{match}".removeprefix(".") for match in get_close_matches(name, names, n=1)]
    elsewhere = dict.fromkeys(
        other[: end + len(name) + 1] for other in known if (end := f"{other}.".find(f".{name}.")) >= 0
    )
    near = near or list(elsewhere) or get_close_matches(key, known, n=1)
    advice = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}"
    return f"there is no setting {key}; {advice}"


def image_settings(settings: Mapping[str, Any]) -> str | None:
    """Why settings, by their full names, do not go together, where some are about images and others are not."""
    backbone, features = settings["model.backbone"], settings["data.features"]
    if (features is not None) != (backbone == VECTORS):
        if features is None:
            return "model.backbone vectors takes those that data.features names; give them with --features"
        return f"data.features are vectors, and model.backbone {backbone} would make others; leave one of them out"
    if backbone not in WITHOUT_IMAGES:
        return None
    if settings["model.mode"] != "linear":
        return (
            f"{WITHOUT_IMAGES[backbone]}: there is no network to fine-tune; choose --mode linear instead of "
            f"{settings['model.mode']}, or leave it out"
        )
    for name in OF_IMAGES:
        if settings[f"model.{name}"] not in (None, "auto"):
            return f"{WITHOUT_IMAGES[backbone]}, and model.{name} is about images; leave it out"
    return None


def _without_effect(config: Config) -> str | None:
    """Why a setting of the linear stage does nothing, if one does not."""
    given, usual = ({name: getattr(each, name) for name in _OF_EPOCHS} for each in (config.linear, LinearConfig()))
    changed = [name for name in _OF_EPOCHS if given[name] != usual[name]]
    if config.linear.protocol == "solve" and changed:
        return (
            f"linear.{changed[0]} belongs to the published protocol, and fixed features are solved for without it; add "
            "linear.protocol=epochs, or leave it out"
        )
    if config.linear.head != "linear" and not config.solves:
        return "linear.head kernel is solved for on fixed features, in mode linear alone; leave it out, or the mode"
    if config.linear.protocol == "epochs" and config.linear.penalty != AUTO:
        return "linear.penalty is the solver's, and linear.protocol is epochs; leave one of them out"
    return None


_CONFIG = TypeAdapter(Config)


def to_toml(config: Config) -> str:
    """The configuration as TOML, complete; what is None is written as "none"."""
    return tomli_w.dumps(_written(asdict(config)))


def flatten(config: Config) -> dict[str, Any]:
    """Every setting by its full name, as "method.options.alpha"."""
    return _flatten(asdict(config), "")


def differences(old: Config, new: Config) -> list[str]:
    """The keys in which two configurations differ, with both values."""
    before, after = flatten(old), flatten(new)
    keys = sorted(before.keys() | after.keys())
    return [f"{key} is {after.get(key)}, was {before.get(key)}" for key in keys if before.get(key) != after.get(key)]


class Setting(NamedTuple):
    """What there is to know of a setting."""

    key: str
    default: Any
    meaning: str


def all_settings() -> list[Setting]:
    """Every setting there is, with its default and its meaning."""
    return list(_settings_of(Config(), ""))


def value_text(value: object) -> str:
    """A value as one would write it after --set; nothing for what is blank.

    >>> [value_text(value) for value in (None, 0.0001, 0, True, ("cat", "dog"), {}, "")]
    ['none', '0.0001', '0', 'true', 'cat,dog', '', '']
    """
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value in ("", {}) else str(value)


def _settings_of(section: Any, prefix: str) -> Iterator[Setting]:
    """Every setting of a section, where its own come before those of the sections in it."""
    values = {each.name: getattr(section, each.name) for each in fields(section)}
    for name in sorted(values, key=lambda name: bool(prefix) and is_dataclass(values[name])):
        if is_dataclass(values[name]):
            yield from _settings_of(values[name], f"{prefix}{name}.")
        else:
            yield Setting(f"{prefix}{name}", values[name], _meaning(type(section), name))


def _meaning(section: Any, name: str) -> str:
    """What a field's docstring says, in the class that has it or in the one that it is inherited from."""
    records: list[Any] = [vars(record).get("__pydantic_fields__", {}) for record in section.__mro__]
    found: str = next(known[name].description for known in records if name in known and known[name].description)
    return found


def _written(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _written(value) if isinstance(value, Mapping) else NOTHING if value is None else value
        for key, value in settings.items()
    }


def _flatten(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def preset_titles() -> dict[str, str]:
    """The presets there are, with the datasets they were made for.

    >>> preset_titles()["cub"]
    'CUB-200-2011'
    """
    return {name: section["title"] for name, section in _sections().items() if name != _UNDER}


def preset(name: str, method: str) -> dict[str, Any]:
    """The settings of a preset for a method, as a configuration file would say them.

    >>> preset("cub", "opml")["method"]["options"]
    {'alpha': 0.9, 'beta': 0.5}
    >>> preset("voc2021", "opml")
    Traceback (most recent call last):
    onepair.errors.ConfigError: there is no preset voc2021; did you mean voc2012?
    """
    titles = preset_titles()
    if name not in titles:
        near = get_close_matches(name, titles, n=1)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(titles)}"
        raise ConfigError(f"there is no preset {name}; {advice}")
    sections = _sections()
    layers = [sections[name]] if name == "digits" else [sections[_UNDER], sections[name]]
    own = merge([layer.get("methods", {}).get(method, {}) for layer in layers])
    options = own.pop("options", {})
    settings = merge([*layers, own, {"method": {"name": method, "options": options}}])
    return {key: value for key, value in settings.items() if key not in ("title", "methods")}


def with_preset(name: str | None, *layers: dict[str, Any]) -> list[dict[str, Any]]:
    """Layers of settings over those of a preset, if one is named, for the method that the layers choose."""
    if name is None:
        return list(layers)
    chosen = merge(layers).get("method", {})
    method = chosen.get("name") if isinstance(chosen, dict) else None
    return [preset(name, str(method or MethodConfig().name)), *layers]


@cache
def _sections() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("presets.toml").read_text("utf-8"))
