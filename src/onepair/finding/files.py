"""What finding leaves in the folder of a run, and how it is written."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from onepair.errors import UserError
from onepair.files import write_atomically
from onepair.finding.rank import Suggestions

COLUMNS = ("file", "label", "probability", "rank", "kind")


class FindingError(UserError, RuntimeError):
    """Nothing can be found, or not as asked."""


def require_writable(path: Path) -> None:
    """Refuse, before any work is done, a file that suggestions cannot be written to."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise FindingError(f"{path}: suggestions are written as .csv or .parquet; name it so")
    if not path.parent.is_dir():
        raise FindingError(f"{path}: there is no folder {path.parent}")


def write_suggestions(path: Path, found: Suggestions, files: Sequence[str], classes: Sequence[str]) -> None:
    """Write file, label, probability, rank and kind of every suggestion, best first, as .csv or .parquet.

    Args:
        path: where to; the file is complete or not there.
        found: the suggestions.
        files: the name of every row.
        classes: the name of every label.
    """
    require_writable(path)
    columns = (
        [files[row] for row in found.row.tolist()],
        [classes[label] for label in found.label.tolist()],
        found.probability.round(6).tolist(),
        list(range(1, len(found) + 1)),
        found.kind.tolist(),
    )
    content = _as_csv(columns) if path.suffix.lower() == ".csv" else _as_parquet(columns)
    write_atomically(path, content)


def _as_csv(columns: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue().encode()


def _as_parquet(columns: Sequence[Sequence[object]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(dict(zip(COLUMNS, columns, strict=True))), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content
