"""`Dataset`: samples, their classes, and what is known of each label, from files, frames, arrays or other libraries."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onepair.data.class_rules import apply_rules, read_rules
from onepair.data.formats.read import read_dataset
from onepair.data.formats.write import named_from, write_labels
from onepair.data.images.decode import as_pixels
from onepair.data.label_table import SPLITS, LabelTable, Numbered, Problem, Report, Vectors, collect
from onepair.data.quality import Progress, clean, find_problems, take_census
from onepair.data.tables.cell_values import Column, is_vector
from onepair.data.tables.read_table import Spellings, Unlisted, Zeros, interpret, with_one_spelling
from onepair.data.tables.sheet import Sheet
from onepair.errors import DataError, import_pandas, reading, require_choice, require_number, require_path
from onepair.features import Extraction, OnProgress, extract_features
from onepair.files import cache_folder
from onepair.inference.engine import Executor, local
from onepair.label_matrix import LabelMatrix
from onepair.labels import UNKNOWN, Indices, Labels, is_missing, observe_fraction, observe_positives, to_numpy
from onepair.words import counted, listed

if TYPE_CHECKING:
    import pandas

MEMORY = "the features"  # the source of vectors that no file holds
_LARGEST_DENSE = 2**30  # numbers of a sparse matrix that are written out


class Dataset:
    """Samples (images, texts or vectors), their classes, and what is known of each label.

    A label is 1 (positive), 0 (negative) or -1 (unknown). Datasets are never changed: every method returns a new one.

    Attributes:
        table: everything in one record.
        problems: what was wrong with the labels that were read, and became of it.
        settings: what a run needs to read the same dataset again; empty where it is in memory alone.

    Examples:
        >>> data = Dataset.from_arrays([[0.0, 1.0], [1.0, 0.0]], [[1, np.nan], [-1, 0]], classes=["dog", "sofa"])
        >>> data
        Dataset(2 vectors of 2 numbers, 2 classes, 1 positive, 1 negative, 2 unknown)
        >>> data.labels
        array([[ 1, -1],
               [-1,  0]], dtype=int8)
        >>> data[1:].files
        ('1',)
    """

    def __init__(
        self, table: LabelTable, *, problems: Sequence[Problem] = (), settings: Mapping[str, Any] | None = None
    ) -> None:
        self.table, self.problems, self.settings = table, list(problems), dict(settings or {})

    # Where datasets come from

    @classmethod
    def read(
        cls,
        source: str | Path,
        *,
        format: str = "auto",
        folder: str | Path | None = None,
        features: str | Path | None = None,
        labels: Sequence[str] = (),
        unlisted: Unlisted = "unknown",
        zeros: Zeros = "negative",
        spellings: Literal["merge", "keep"] = "merge",
        same: Sequence[str] = (),
        classes: str | Path | None = None,
        complete_splits: Sequence[str] = (),
        strict: bool = False,
    ) -> "Dataset":
        """Read a dataset from files, in any format that `onepair datasets` lists.

        Args:
            source: a path, a URL, or "digits".
            format: a format by its name; "auto" goes by the layout of the files.
            folder: of the images, where it is not that of the labels.
            features: a file of vectors in place of images, a row for each row of the table.
            labels: the columns of a table that hold labels, where they are not to be recognised.
            unlisted: what a label is that a list does not name.
            zeros: what a 0 of a table is.
            spellings: whether names of classes in a table that differ in case, spaces or a plural are one class.
            same: classes by other names, as "hund=dog".
            classes: a table of classes, with the columns name, same as, is a, not with.
            complete_splits: splits in which every label that is not listed is negative.
            strict: raise an error at the first row that cannot be used, instead of leaving it out.

        Returns:
            The dataset; its `problems` say what could not be used, and what became of it.

        Raises:
            DataError: the files cannot be read.

        Examples:
            >>> Dataset.read("digits")[:100]
            Dataset(100 images, 10 classes, 258 positive, 742 negative, 0 unknown)
        """
        if not isinstance(source, str | Path):
            raise DataError(
                f"a dataset is read from a path, not {type(source).__name__}; from_frame takes a DataFrame, and "
                "from_arrays arrays"
            )
        _require_reading(unlisted, zeros, spellings)
        problems: list[Problem] = []
        columns = (labels,) if isinstance(labels, str) else tuple(labels)
        table = read_dataset(
            source,
            format=format,
            unlisted=unlisted,
            zeros=zeros,
            spellings=spellings,
            same=tuple(same),
            classes=classes,
            images=folder,
            label_columns=columns or None,
            complete_splits=complete_splits,
            features=features,
            report=collect(problems, strict=strict),
        )
        settings = {
            "source": str(source),
            "format": format,
            "unlisted": unlisted,
            "zeros": zeros,
            "spellings": spellings,
            "same": tuple(same),
            "classes": None if classes is None else str(classes),
            "images": None if folder is None else str(folder),
            "features": None if features is None else str(features),
            "label_columns": columns,
            "complete_splits": tuple(complete_splits),
            "on_error": "raise" if strict else "skip",
        }
        return cls(table, problems=problems, settings=settings)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        file: str | None = None,
        labels: str | Sequence[str] | None = None,
        folder: str | Path = ".",
        features: Any = None,
        unlisted: Unlisted = "unknown",
        zeros: Zeros = "negative",
        spellings: Spellings = "merge",
        same: Sequence[str] = (),
        classes: str | Path | None = None,
        strict: bool = False,
    ) -> "Dataset":
        """Take a DataFrame of pandas or polars, with the columns that a table in a file may have.

        Args:
            frame: a row per image, text or vector.
            file: the column of file names; by default the one that looks like it.
            labels: a column of lists of labels (or texts such as "dog;sofa"), or one column per class with 1, 0 or
                nothing; by default they are recognised.
            folder: that the file names are relative to.
            features: an array (N, D) of vectors in place of images.
            unlisted, zeros, spellings, same, classes, strict: as for `read`.

        Returns:
            The dataset; its `problems` say what could not be used, and what became of it.

        Raises:
            DataError: a column is missing or twice there, or its cells are no labels.

        Examples:
            >>> import pandas
            >>> frame = pandas.DataFrame({"file": ["a.jpg", "b.jpg"], "tags": [["dog"], ["dog", "sofa"]]})
            >>> Dataset.from_frame(frame, labels="tags", folder="photos/")
            Dataset(2 images, 2 classes, 3 positive, 0 negative, 1 unknown)
        """
        frame = frame.collect() if hasattr(frame, "collect") else frame  # a lazy one of polars
        if not hasattr(frame, "columns"):
            raise DataError(f"a frame is a DataFrame of pandas or polars, not {type(frame).__name__}")
        _require_reading(unlisted, zeros, spellings)
        names = [str(name) for name in frame.columns]
        wanted = [labels] if isinstance(labels, str) else list(map(str, labels or []))
        for name in [*wanted, *([] if file is None else [file])]:
            if name not in names:
                raise DataError(f"the frame has no column {name!r}; it has {listed(names)}")
        if file in wanted:
            raise DataError(f"the column {file!r} cannot hold both the files and the labels; name another one")
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise DataError(f"the frame has {names.count(twice[0])} columns {twice[0]!r}; rename all but one")
        cells = {name: _cells(frame[column]) for name, column in zip(names, frame.columns, strict=True)}
        header = [
            "file" if name == file else f"{name} (other)" if name.lower() == "file" and file else name for name in names
        ]
        sheet = Sheet(
            source=Path("the frame"),
            header=header,
            columns=[Column(cells[name]) for name in names],
            places=[f"the frame, row {row}" for row in range(len(frame))],
            numbers=list(range(len(frame))),
            total=len(frame),
        )
        problems: list[Problem] = []
        report = collect(problems, strict=strict)
        table = interpret(
            sheet,
            [require_path(folder, "folder")],
            unlisted=unlisted,
            zeros=zeros,
            label_columns=wanted or None,
            with_vectors=features is not None,
            report=report,
        )
        if spellings == "merge":
            table = with_one_spelling(table, sheet.source, report)
        if same or classes is not None:
            rules = read_rules(same, None if classes is None else Path(classes))
            table = apply_rules(table, rules, source="the frame", report=report, stated=unlisted == "unknown")
        if features is not None:
            vectors = _vectors(features).of_table(table.files, table.numbered, "the frame")
            table = replace(table, vectors=vectors, ids=True)
        return cls(_checked(table), problems=problems)

    @classmethod
    def from_arrays(
        cls,
        X: Any,  # noqa: N803 (the name that users of scikit-learn know)
        Y: Any,  # noqa: N803
        *,
        classes: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        split: str | Sequence[str] = "train",
    ) -> "Dataset":
        """Take a matrix of features (N, D), or a list of texts, and a matrix of labels (N, L).

        Args:
            X: an array, a memory-mapped one, which stays on the disk, a torch tensor, a DataFrame, or a sparse matrix;
                or N strings, each a text; or images (N, H, W, 3) of bytes, or N of PIL.
            Y: 1, 0, and -1, NaN or None for unknown; of a sparse matrix, what is not stored is unknown.
            classes: the names of the columns of Y; by default those of a DataFrame, or their numbers.
            names: of the rows; by default their numbers.
            split: "train", "validation" or "test", of all rows or of each.

        Returns:
            The dataset, all in memory, or mapped where the array was.

        Raises:
            DataError: the sizes do not fit each other, or a cell is no label.

        Examples:
            >>> Dataset.from_arrays(["a dog", "a sofa"], [[1, None], [None, 1]], classes=["dog", "sofa"])
            Dataset(2 texts, 2 classes, 2 positive, 0 negative, 2 unknown)
        """
        labels, classes = _labels(Y, classes)
        with reading("X"):
            if isinstance(X, str | PurePath | Mapping) or not (hasattr(X, "__len__") or hasattr(X, "shape")):
                raise DataError(
                    f"X is an array of features (N, D), or N texts or images, not {type(X).__name__}; make a list or "
                    "an array of it (Dataset.read reads files)"
                )
            return cls(_in_memory(labels, classes, names, split, **_inputs(X)))

    @classmethod
    def from_hf(
        cls,
        dataset: Any,
        *,
        image: str = "image",
        labels: str = "labels",
        classes: Sequence[str] | None = None,
        split: str | Sequence[str] = "train",
    ) -> "Dataset":
        """Take a dataset of Hugging Face's `datasets`; its images are decoded when they are needed.

        Args:
            dataset: a `datasets.Dataset`.
            image: its column of images.
            labels: its column of lists of labels: names, numbers of a `ClassLabel`, objects with a category, or one 1
                or 0 for each class.
            classes: their names, where each row has one 1 or 0 for each class.
            split: as for `from_arrays`.

        Returns:
            The dataset. It is not written beside a run, so open one later by `Run(path, data=...)`.

        Raises:
            DataError: it has no such column, or is no `datasets.Dataset`.

        Examples:
            >>> Dataset.from_hf(datasets.load_dataset("detection-datasets/coco"), labels="objects")  # doctest: +SKIP
        """
        if isinstance(dataset, Mapping):
            raise DataError(f"these are the splits {listed(list(dataset))} of a dataset; give one of them")
        if not hasattr(dataset, "column_names") or not hasattr(dataset, "__len__"):
            raise DataError(f"a dataset of Hugging Face is a datasets.Dataset, not {type(dataset).__name__}")
        for column in (image, labels):
            if column not in dataset.column_names:
                raise DataError(f"the dataset has no column {column!r}; it has {listed(dataset.column_names)}")
        with reading(f"the column {labels!r}"):
            images, cells = Images(lambda row: dataset[row][image], len(dataset)), list(dataset[labels])
        lists, known = _hf_lists(cells, dataset.features.get(labels))
        if not known and (classes is not None or all(is_vector([str(each) for each in _categories(c)]) for c in cells)):
            matrix, classes = _labels(cells, classes)
        else:
            classes = known or sorted({name for names in lists for name in names})
            column_of = {name: column for column, name in enumerate(classes)}
            rows = np.repeat(np.arange(len(lists)), [len(names) for names in lists])
            columns = np.array([column_of[name] for names in lists for name in names], np.intp)
            matrix = LabelMatrix.from_entries((len(lists), len(classes)), rows, columns, 1)
        return cls(_in_memory(matrix, classes, None, split, pixels=images))

    @classmethod
    def from_torch(
        cls,
        dataset: Any,
        *,
        targets: Any = None,
        classes: Sequence[str] | None = None,
        split: str | Sequence[str] = "train",
    ) -> "Dataset":
        """Take a map-style dataset of PyTorch whose items are images, or pairs of an image and its labels.

        Args:
            dataset: gives PIL images, uint8 arrays (H, W, 3), or tensors (3, H, W) of bytes or of numbers in 0 … 1.
            targets: labels (N, L) as for `from_arrays`; by default the second part of each item, for which all items
                are read once.
            classes: the names of the columns.
            split: as for `from_arrays`.

        Returns:
            The dataset. It is not written beside a run, so open one later by `Run(path, data=...)`.

        Raises:
            DataError: it has no length, or its items are no images, or cannot be read.

        Examples:
            >>> import torch
            >>> pictures = torch.utils.data.TensorDataset(torch.zeros(2, 3, 8, 8), torch.tensor([[1, -1], [0, 1]]))
            >>> Dataset.from_torch(pictures, classes=["dog", "sofa"])
            Dataset(2 images, 2 classes, 2 positive, 1 negative, 1 unknown)
        """
        if not hasattr(dataset, "__len__"):
            raise DataError(f"{type(dataset).__name__} has no length; give a map-style dataset")

        def image(row: int) -> Any:
            item = dataset[row]
            return item[0] if isinstance(item, tuple | list) else item

        with reading("the dataset"):
            rows = len(dataset)
        if targets is None:
            with reading("the labels of an item, its second part,"):
                targets = [dataset[row][1] for row in range(rows)]
        labels, names = _labels(targets, classes)
        return cls(_in_memory(labels, names, None, split, pixels=Images(image, rows)))

    # What is in one

    def __len__(self) -> int:
        return len(self.table)

    @property
    def files(self) -> tuple[str, ...]:
        """The name of each sample."""
        return self.table.files

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.table.classes

    @property
    def labels(self) -> Labels:
        """What is known (N, L): 1, 0 or -1."""
        return self.table.labels.dense()

    @property
    def split(self) -> NDArray[np.str_]:
        """The split of each sample: "train", "validation" or "test"."""
        return self.table.split

    def __getitem__(self, rows: slice | ArrayLike) -> "Dataset":
        """Return some of the rows: of a slice, of numbers, or of a mask."""
        chosen = np.arange(len(self))[rows if isinstance(rows, slice) else np.asarray(rows)]
        return Dataset(_of_rows(self.table, np.atleast_1d(chosen)))

    def check(self, *, images: bool = False, progress: Progress = iter) -> list[Problem]:
        """Return all that is wrong with the dataset, and remarks on it.

        Args:
            images: also decode every image.
            progress: is handed the rows, and gives them back one by one, for example `tqdm`.
        """
        return [*self.problems, *find_problems(self.table, images=images, progress=progress)]

    def fix(
        self, *, is_same: Callable[[str, str], bool] = lambda one, other: False, progress: Progress = iter
    ) -> "Dataset":
        """Return the dataset without what is wrong with it; `problems` of the result says what became of each thing.

        Args:
            is_same: whether two similar names are one class, for example asked of a person.
            progress: as for `check`.
        """
        cleaned = clean(self.table, is_same=is_same, progress=progress)
        return Dataset(cleaned.table, problems=[*self.problems, *cleaned.changes, *cleaned.doubts])

    def extract_features(
        self,
        backbone: str | None = None,
        *,
        weights: str | None = None,
        image_size: int | None = None,
        flipped: bool = False,
        cache: str | Path | None = None,
        threads: int | None = None,
        executor: Executor = local,
        report: Report = lambda _: None,
        on_progress: OnProgress = lambda done, rows: None,
    ) -> Extraction:
        """Compute the features of all images by a network, and keep them in the cache for every run on them.

        Images are identified by their content: what was computed before, for any dataset, is not computed again.

        Args:
            backbone: a network by its name; by default the best pretrained one on this machine.
            weights: of the network, as in the setting model.weights.
            image_size: in pixels; by default that of the pretrained weights.
            flipped: of the mirrored images.
            cache: the folder that keeps them; by default the user's cache.
            threads: that read images; by default one per core.
            executor: computes elsewhere.
            report: is told of each image that cannot be read, whose features are NaN.
            on_progress: is told how many images are done, and how many there are.

        Returns:
            The features (N, D), and what was done to have them.

        Raises:
            DataError: the dataset has no images.
        """
        from onepair.inference.engine_selector import EngineSelector  # and torch
        from onepair.models import best_at_hand, create_backbone, parse_weights

        if self.table.ids:
            raise DataError("the dataset has no images to extract features of")
        network = create_backbone(backbone or best_at_hand(), weights=parse_weights(weights), image_size=image_size)
        kept_in = cache_folder() if cache is None else Path(cache)
        return extract_features(
            self.table,
            network,
            network.preprocessing,
            executor(EngineSelector(network, cache=kept_in)),
            folder=kept_in / "features",
            view="flipped" if flipped else "plain",
            workers=threads,
            report=report,
            on_progress=on_progress,
        )

    def observe(
        self,
        process: Literal["single-positive", "few-positives", "fraction"] = "single-positive",
        *,
        positives: int = 2,
        known: float = 0.1,
        seed: int = 1200,
    ) -> "Dataset":
        """Hide labels of training rows that are known in full, by the random streams of published results.

        Args:
            process: keep one positive of each row, up to `positives` of them, or the share `known` of all labels.
            positives: how many, for "few-positives".
            known: which share, for "fraction".
            seed: of the random stream.

        Returns:
            The dataset, whose other training labels are unknown.

        Raises:
            DataError: a training label is unknown already, or an option has no such value.
        """
        require_choice("process", process, ("single-positive", "few-positives", "fraction"))
        require_number("positives", positives, 1, whole=True)
        require_number("known", known, 0, 1)
        require_number("seed", seed, 0, whole=True)
        rows = self.table.rows("train")
        full = self.table.labels[rows]
        if (full == UNKNOWN).any():
            raise DataError("to hide labels, every training label must be known")
        if process == "fraction":
            seen = observe_fraction(full, known=known, seed=seed)
        else:
            seen = observe_positives(full, per_sample=positives if process == "few-positives" else 1, seed=seed)
        return self.with_labels(self.table.labels.with_rows(rows, LabelMatrix.of(seen)))

    def with_labels(self, labels: "ArrayLike | LabelMatrix") -> "Dataset":
        """Return the same samples with other labels.

        Args:
            labels: (N, L), in the form that `from_arrays` takes them.

        Raises:
            DataError: they are of another size, or a cell is no label.
        """
        given = labels if isinstance(labels, LabelMatrix) else _labels(labels, self.classes)[0]
        if given.shape != self.table.labels.shape:
            raise DataError(f"labels are {self.table.labels.shape}, a row per sample, not {given.shape}")
        return Dataset(replace(self.table, labels=given))

    def with_split(self, split: str | Sequence[str]) -> "Dataset":
        """Return the same samples in other splits.

        Args:
            split: "train", "validation" or "test", of all or of each.

        Raises:
            DataError: there is no such split, or there are more or fewer than samples.
        """
        return Dataset(replace(self.table, split=_splits(split, len(self))))

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with the columns file and split, and one per class: 1, 0 or <NA>."""
        pandas = import_pandas()
        columns: dict[str, Any] = {"file": list(self.files), "split": self.split.tolist(), **self.table.more_columns()}
        for name, values in zip(self.classes, self.labels.T, strict=True):
            columns[name] = pandas.array(np.where(values == UNKNOWN, None, values.astype(object)), dtype="Int8")
        return pandas.DataFrame(columns)

    def write(self, path: str | Path, *, format: str = "auto") -> None:
        """Write the labels, with file names relative to the file, so that it can be trained on as it stands.

        Args:
            path: a .csv or .parquet file, or a .json with a format.
            format: "coco", "label-studio" or "fiftyone"; "auto" goes by the suffix.

        Raises:
            DataError: there is no such format.
            WriteError: the file cannot be written.
        """
        path = require_path(path, "what labels are written to")
        write_labels(
            self.table if self.table.pixels is not None else named_from(self.table, path.parent), path, format=format
        )

    def __repr__(self) -> str:
        return f"Dataset({', '.join(self._counts())})"

    def _counts(self) -> list[str]:
        table, census = self.table, take_census(self.table)
        noun, more = "image", ""
        if table.vectors is not None:
            noun, more = "vector", f" of {counted(table.vectors.width, 'number')}"
        elif table.texts is not None and table.ids:
            noun = "text"
        values = [int(each.sum()) for each in (census.positive, census.negative, census.unknown)]
        labels = [f"{n:,} {what}" for n, what in zip(values, ("positive", "negative", "unknown"), strict=True)]
        found = [f"{counted(len(self.problems), 'remark')} in .problems"] if self.problems else []
        return [counted(len(table), noun) + more, counted(len(table.classes), "class"), *labels, *found]

    def _repr_html_(self) -> str:
        census, most = take_census(self.table), 20
        order = np.argsort(-census.positive, kind="stable")[:most].tolist()
        rows = "".join(
            f"<tr><td>{escape(self.classes[i])}</td><td>{census.positive[i]:,}</td><td>{census.negative[i]:,}</td>"
            f"<td>{census.unknown[i]:,}</td></tr>"
            for i in order
        )
        more = len(self.classes) - len(order)
        return (
            f"<p><b>Dataset</b>: {escape(', '.join(self._counts()))}</p><table><thead><tr><th>class</th>"
            f"<th>positive</th><th>negative</th><th>unknown</th></tr></thead><tbody>{rows}</tbody></table>"
            + (f"<p>… and {counted(more, 'more class')}</p>" if more else "")
        )


class Images(Sequence[Any]):
    """Images in memory, or of another library's dataset: uint8 arrays (H, W, 3), each made when it is asked for."""

    def __init__(self, read: Callable[[int], Any], length: int) -> None:
        self._read, self._length = read, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: Any) -> Any:
        if not 0 <= row < self._length:
            raise IndexError(row)
        with reading(f"image {row}"):
            return as_pixels(self._read(int(row)), what=f"image {row}")


class _SomeImages(NamedTuple):
    """Reads some of the images of another sequence."""

    images: Any
    rows: Indices

    def __call__(self, row: int) -> Any:
        return self.images[int(self.rows[row])]


def _cells(column: Any) -> list[Any]:
    """The cells of a column, with None for what is missing; lists stay lists."""
    cells = column.to_list() if hasattr(column, "to_list") else list(column)
    return [None if is_missing(cell) else _plain(cell) for cell in cells]


def _plain(cell: Any) -> Any:
    if isinstance(cell, np.ndarray | tuple | set):
        return list(cell)
    return str(cell) if isinstance(cell, PurePath) else cell


def _texts(given: Any) -> tuple[str, ...] | None:
    """The texts of a list, an array or a column, if that is what it has."""
    if hasattr(given, "to_list"):
        given = given.to_list()
    cells = given.tolist() if isinstance(given, np.ndarray) and given.dtype.kind in "OU" else given
    if not isinstance(cells, list | tuple) or not any(isinstance(each, str) for each in cells):
        return None
    for row, cell in enumerate(cells):
        if not isinstance(cell, str):
            raise DataError(f"row {row} of the texts is {cell!r}, which is no text; leave the row out")
    return tuple(map(str, cells))


def _inputs(given: Any) -> dict[str, Any]:
    """Texts, images or vectors, by what is given."""
    if (texts := _texts(given)) is not None:
        return {"texts": texts}
    if getattr(given, "ndim", 0) == 4 or (isinstance(given, list | tuple) and given and hasattr(given[0], "convert")):
        return {"pixels": Images(given.__getitem__, len(given))}
    return {"vectors": _vectors(given)}


def _require_reading(unlisted: str, zeros: str, spellings: str) -> None:
    for name, given, words in (
        ("unlisted", unlisted, Unlisted),
        ("zeros", zeros, Zeros),
        ("spellings", spellings, Spellings),
    ):
        require_choice(name, given, get_args(words))


def _splits(split: str | Sequence[str], rows: int) -> NDArray[np.str_]:
    """The split of each row."""
    names = [split] * rows if isinstance(split, str) else [str(name) for name in split]
    if len(names) != rows:
        raise DataError(f"there {'is' if rows == 1 else 'are'} {counted(rows, 'sample')}, and split of {len(names):,}")
    return np.array(names, dtype=np.str_)


def _vectors(given: Any) -> Vectors:
    """A matrix of features; what is memory-mapped stays so."""
    from scipy.sparse import issparse

    if issparse(given):
        if given.shape[0] * given.shape[1] > _LARGEST_DENSE:
            raise DataError(
                f"a sparse matrix of {given.shape} is too large to be written out; fit OPMLClassifier to it"
            )
        given = given.toarray()
    try:
        array = given if isinstance(given, np.ndarray) else to_numpy(given)
        array = array.astype(np.float64) if array.dtype == object else array
    except (TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"features are a matrix of numbers (N, D), or N texts ({error}); mend the rows") from None
    if array.ndim != 2 or array.dtype.kind not in "biuf" or not array.size:
        raise DataError(
            f"features are a matrix of numbers (N, D), not {array.dtype} of shape {array.shape}; give real numbers "
            "with two axes"
        )
    return Vectors(MEMORY, (array,))


def _labels(given: Any, classes: Sequence[str] | None) -> tuple[LabelMatrix, Sequence[str]]:
    """Labels in the one alphabet, by their known entries, and the names of their columns."""
    from scipy.sparse import issparse

    with reading("Y"):
        if issparse(given):
            entries = given.tocoo()
            values = np.where(np.isnan(entries.data), UNKNOWN, entries.data)
            labels = LabelMatrix.from_entries(entries.shape, entries.row, entries.col, values)
        else:
            labels = LabelMatrix.of(_label_array(given))
    if classes is None:
        classes = list(map(str, given.columns if hasattr(given, "columns") else range(labels.shape[1])))
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise DataError(f"classes are a list of names, one for each column of the labels, not {classes!r}")
    named = list(classes)
    if bad := [name for name in named if is_missing(name)]:
        raise DataError(f"class {named.index(bad[0])} has no name, but {bad[0]}; name it")
    return labels, [str(name) for name in named]


def _label_array(given: Any) -> NDArray[Any]:
    """A matrix of numbers, with NaN for what is missing."""
    if isinstance(given, Iterable) and not hasattr(given, "shape") and not isinstance(given, str | Mapping):
        given = [each.tolist() if hasattr(each, "tolist") else each for each in given]
    try:
        array = to_numpy(given)
        if array.dtype == object:
            array = np.array([[np.nan if is_missing(cell) else cell for cell in row] for row in array], float)
    except (TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            "labels are a matrix (N, L) of 1, 0, and -1, NaN or None for unknown; lists of names are read by "
            "Dataset.from_frame"
        ) from None
    return array


def _in_memory(
    labels: LabelMatrix,
    classes: Sequence[str],
    names: Sequence[str] | None,
    split: str | Sequence[str],
    **inputs: Any,
) -> LabelTable:
    """A table of samples that no file holds: its `inputs` are vectors, texts or pixels."""
    (rows,) = map(len, inputs.values())
    names = [str(row) for row in range(rows)] if names is None else [str(name) for name in names]
    for what, count in (("labels", len(labels)), ("names", len(names))):
        if count != rows:
            raise DataError(f"there {'is' if rows == 1 else 'are'} {counted(rows, 'sample')}, and {what} of {count:,}")
    if len(classes) != labels.shape[1]:
        raise DataError(f"labels have {counted(labels.shape[1], 'column')}, and {len(classes):,} classes are named")
    for what, each in (("class", classes), ("name", names)):
        if len(set(each)) < len(each):
            twice = next(name for name in each if list(each).count(name) > 1)
            raise DataError(f"the {what} {twice!r} is there twice; each needs a name of its own")
    if rows and "pixels" in inputs:
        inputs["pixels"][0]  # what is no image is refused at once
    table = LabelTable(
        files=tuple(names),
        classes=tuple(classes),
        labels=labels,
        split=_splits(split, rows),
        root=Path(),
        numbered=Numbered(np.arange(rows), rows),
        ids="pixels" not in inputs,
        **inputs,
    )
    return _checked(table)


def _checked(table: LabelTable) -> LabelTable:
    table.check_names("the dataset")
    return table


def _of_rows(table: LabelTable, rows: Indices) -> LabelTable:
    """Some rows of a table, in any order."""
    images = table.pixels
    chosen = (
        None
        if images is None
        else images[rows]
        if isinstance(images, np.ndarray)
        else Images(_SomeImages(images, rows), len(rows))
    )
    return replace(
        table,
        files=tuple(table.files[row] for row in rows.tolist()),
        labels=table.labels.take(rows),
        split=table.split[rows],
        pixels=chosen,
        asked=None if table.asked is None else table.asked.take(rows),
        places=None if table.places is None else [table.places[row] for row in rows.tolist()],
        texts=None if table.texts is None else tuple(table.texts[row] for row in rows.tolist()),
        group=None if table.group is None else tuple(table.group[row] for row in rows.tolist()),
        vectors=None if table.vectors is None else table.vectors.of_rows(rows),
        numbered=Numbered(np.arange(len(rows)), len(rows)),
    )


def _hf_lists(cells: Iterable[Any], feature: Any) -> tuple[list[list[str]], list[str]]:
    """The names in each cell of a column of Hugging Face's, and all names where the column knows them."""
    lists = [_categories(cell) for cell in cells]
    inner = feature
    while inner is not None and not hasattr(inner, "names"):
        inner = _categories(inner) if isinstance(inner, Mapping) else getattr(inner, "feature", None)
        inner = inner[0] if isinstance(inner, list) and inner else inner
    names = [str(name) for name in inner.names] if hasattr(inner, "names") else []
    named = [
        [names[each] if names and isinstance(each, int | np.integer) else str(each) for each in own] for own in lists
    ]
    return [list(dict.fromkeys(own)) for own in named], names


def _categories(cell: Any) -> Any:
    """What lists the labels in a cell: itself, or the categories of the objects in it."""
    keys = ("category", "categories", "label", "labels", "name")
    if isinstance(cell, Mapping):
        found = next((cell[key] for key in keys if key in cell), None)
        if found is None:
            raise DataError(f"objects have none of {', '.join(keys)}, but {listed(list(cell))}")
        return found
    if isinstance(cell, list | tuple) and cell and isinstance(cell[0], Mapping):
        return [_categories(each) for each in cell]
    if cell is None:
        return []
    return cell if isinstance(cell, list | tuple | np.ndarray) else [cell]


__all__ = ["SPLITS", "Dataset"]
