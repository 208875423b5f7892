"""What can happen to a file: bytes of it, its structure, or what stands in its place."""

import csv
import io
import json
import pickle
import sqlite3
import tomllib
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import safetensors.numpy
import tomli_w

ODD_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 10**9, 10**30, -5, 0.5, 1e308, -1e308, float("inf"), float("-inf"), float("nan")),
    *("", " ", "none", "1", "nan", "\0", "a\0b", "x" * 5000, "../../../etc/passwd", "/dev/zero", ".", "/"),
    *("\ud800", "=1+1", "\u202e\ufeff", "<script>", "[bold]", "%s%n", "line\nbreak", "é" * 200),
    *([], {}, [[]], [1, "a", None], {"a": {"b": []}}, [0.5] * 40, ["cat"] * 3),
]


def mutate(path: Path, random: Random, donors: Sequence[Path]) -> str:
    """Do something bad to a file, and say what."""
    structured = _STRUCTURED.get(path.suffix)
    change = random.choice([structured] * 3 + _ANY if structured else _ANY)
    try:
        said = change(path, random, donors)
    except (ValueError, TypeError, IndexError, OSError, sqlite3.Error):  # as of a donor that was spoiled before
        said = _damage(path, random, donors)
    return f"{path.name}: {said}"


# Of any file


def _damage(path: Path, random: Random, donors: Sequence[Path]) -> str:
    content = bytearray(path.read_bytes())
    for _ in range(random.choice([1, 1, 2, 5, 20])):
        start = random.randrange(len(content) + 1)
        end = min(len(content), start + random.choice([0, 1, 1, 4, 50]))
        content[start:end] = random.choice([random.randbytes(end - start), b"", b"\xff", b"\0", b'"', b"9" * 30, b"\n"])
    path.write_bytes(content)
    return "damaged"


def _truncate(path: Path, random: Random, donors: Sequence[Path]) -> str:
    content = path.read_bytes()
    kept = random.randrange(len(content) + 1)
    path.write_bytes(content[:kept])
    return f"truncated to {kept} bytes"


def _empty(path: Path, random: Random, donors: Sequence[Path]) -> str:
    path.write_bytes(b"")
    return "emptied"


def _remove(path: Path, random: Random, donors: Sequence[Path]) -> str:
    path.unlink()
    return "removed"


def _replace(path: Path, random: Random, donors: Sequence[Path]) -> str:
    donor = random.choice(donors)
    path.write_bytes(donor.read_bytes())
    return f"replaced by {donor.name}"


class _Trap:
    """Unpickled, it would leave a file behind."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (Path("unpickled"),)


def _pickle(path: Path, random: Random, donors: Sequence[Path]) -> str:
    path.write_bytes(pickle.dumps(random.choice([{"a": 1}, [_Trap()], np.zeros(3)])))
    return "replaced by a pickle"


def _link(path: Path, random: Random, donors: Sequence[Path]) -> str:
    target = random.choice([path.parent / "nowhere", path, path.parent, Path("/dev/null"), random.choice(donors)])
    path.unlink()
    path.symlink_to(target)
    return f"a link to {target.name}"


def _folder(path: Path, random: Random, donors: Sequence[Path]) -> str:
    path.unlink()
    path.mkdir()
    return "replaced by a folder"


def _zeros(path: Path, random: Random, donors: Sequence[Path]) -> str:
    size = random.choice([1000, 1000_000, 1 << 30])
    path.write_bytes(b"")
    with path.open("r+b") as file:
        file.truncate(size)  # which takes no room on the disk
    return f"replaced by {size} zeros"


_ANY = [_damage] * 4 + [_truncate] * 2 + [_empty, _remove, _replace, _replace, _pickle, _link, _link, _folder]
_ANY = [*_ANY * 2, _zeros]


# By what files hold


def _spots(value: Any) -> list[tuple[Any, Any]]:
    """Every place in nested dictionaries and lists: what holds it, and its key there."""
    if not isinstance(value, dict | list):
        return []
    keys: Sequence[Any] = list(value) if isinstance(value, dict) else range(len(value))
    return [spot for key in keys for spot in [(value, key), *_spots(value[key])]]


def _alter(document: Any, random: Random) -> str:
    """Remove, replace, rename or repeat something in nested dictionaries and lists."""
    holder, key = random.choice(_spots(document))
    way = random.choice(["remove", "replace", "replace", "replace", "rename", "repeat"])
    if way == "remove":
        del holder[key]
    elif way == "replace":
        holder[key] = random.choice(ODD_VALUES)
    elif way == "rename" and isinstance(holder, dict):
        holder[f"{key}x"] = holder.pop(key)
    else:
        holder[key] = [holder[key]] * random.choice([1, 2, 50])
    return f"{way} {key}"


def _json(path: Path, random: Random, donors: Sequence[Path]) -> str:
    if random.random() < 0.03:
        path.write_text("[" * 100_000)
        return "nested deeply"
    document = json.loads(path.read_text("utf-8"))
    said = [_alter(document, random) for _ in range(random.choice([1, 1, 2, 4]))]
    path.write_text(json.dumps(document))
    return ", ".join(said)


def _json_lines(path: Path, random: Random, donors: Sequence[Path]) -> str:
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    said = [_alter(lines, random) for _ in range(random.choice([1, 1, 2, 10]))]
    path.write_text("\n".join(map(json.dumps, lines)))
    return ", ".join(said)


def _toml(path: Path, random: Random, donors: Sequence[Path]) -> str:
    document = tomllib.loads(path.read_text("utf-8"))
    said = [_alter(document, random) for _ in range(random.choice([1, 1, 2, 4]))]
    try:
        path.write_text(tomli_w.dumps(document))
    except (TypeError, UnicodeEncodeError):  # TOML cannot say None
        return _damage(path, random, donors)
    return ", ".join(said)


def _csv(path: Path, random: Random, donors: Sequence[Path]) -> str:
    rows = list(csv.reader(io.StringIO(path.read_text("utf-8"), newline="")))
    said = [_alter(rows, random) for _ in range(random.choice([1, 1, 3, 20]))]
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=random.choice(",,,;\t|"))
    for row in rows:
        writer.writerow(row if isinstance(row, list) else [row])
    path.write_bytes(text.getvalue().encode(random.choice(["utf-8", "utf-8", "utf-16", "latin-1"]), "replace"))
    return ", ".join(said)


def _parquet(path: Path, random: Random, donors: Sequence[Path]) -> str:
    columns = {name: column.to_pylist() for name, column in _columns(path).items()}
    name = random.choice(list(columns))
    way = random.choice(["remove", "retype", "cell", "rename"])
    if way == "remove":
        del columns[name]
    elif way == "rename":
        columns[random.choice(["file", "labels", "", "\0", "split"])] = columns.pop(name)
    elif way == "retype":
        kinds: list[Callable[[Any], Any]] = [str, lambda value: [value], lambda value: {"a": value}, lambda _: None]
        columns[name] = list(map(random.choice([*kinds, lambda _: b"\xff\0", lambda _: 1e300]), columns[name]))
    else:
        columns[name] = [random.choice([cell, cell, None]) for cell in columns[name]]
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return f"{way} {name}"


def _columns(path: Path) -> dict[str, Any]:
    table = pyarrow.parquet.read_table(path)
    return dict(zip(table.column_names, table.columns, strict=True))


def _npy(path: Path, random: Random, donors: Sequence[Path]) -> str:
    array = np.load(path, allow_pickle=False)
    if random.random() < 0.15:
        return _npy_header(path, random)
    places = tuple(random.randrange(size) for size in array.shape)
    spoiled = array.copy()
    spoiled[places] = np.array(random.choice([np.inf, -np.inf, np.nan, 1e30])).astype(array.dtype)
    changed = random.choice(
        [
            *(
                array[:-1],
                array[:, :-1],
                array.T,
                array.ravel(),
                array[None],
                array[:0],
                np.zeros(()),
                spoiled,
                spoiled,
            ),
            *(array.astype(kind) for kind in ("f8", "f2", "i4", "?", "c8", "U5", "O", ">f4", "M8[s]")),
            *(np.asfortranarray(array), np.zeros(array.shape, [("a", "f4")])),
        ]
    )
    with path.open("wb") as file:
        np.save(file, changed)
    return f"{changed.dtype} of {changed.shape}"


def _npy_header(path: Path, random: Random) -> str:
    """A header that claims more than there is, or what is no header."""
    claims = ["(99999999999, 4)", "(-1, 4)", "(2**40,)", "'", "((((", "(1,)*9", "()"]
    claim = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {random.choice(claims)}, }}\n".encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(claim).to_bytes(2, "little") + claim + bytes(64))
    return f"header {claim!r}"


def _sqlite(path: Path, random: Random, donors: Sequence[Path]) -> str:
    with closing(sqlite3.connect(path)) as database, database:
        for trigger in ("never_changed", "never_deleted"):
            database.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        statement = random.choice(
            [
                "DROP TABLE decisions",
                "DROP VIEW stands_last",
                "DROP TABLE classes",
                "UPDATE decisions SET file = 7, label = x'ff'",
                "UPDATE decisions SET label = 'nosuch'",
                "UPDATE decisions SET at = 'yesterday'",
                "UPDATE decisions SET who = x'00ff', at = 12",
                "UPDATE decisions SET undoes = 99999",
                "UPDATE decisions SET action = 'text'",
                "ALTER TABLE decisions RENAME COLUMN answer TO reply",
                "ALTER TABLE decisions ADD COLUMN more TEXT",
                "INSERT INTO classes (name, who, at) VALUES (x'ff00', 'a', 'b')",
                "INSERT INTO classes (name, who, at) VALUES ('', '', '')",
                "PRAGMA user_version = 99",
                "DELETE FROM decisions",
            ]
        )
        database.execute(statement)
    return statement


def _safetensors(path: Path, random: Random, donors: Sequence[Path]) -> str:
    with safetensors.safe_open(path, "np") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    name = random.choice(list(tensors))
    way = random.choice(["remove", "rename", "shape", "dtype", "infinite", "metadata"])
    if way == "remove":
        del tensors[name]
    elif way == "rename":
        tensors[f"{name}x"] = tensors.pop(name)
    elif way == "shape":
        tensors[name] = np.ascontiguousarray(tensors[name].ravel()[:-1])
    elif way == "dtype":
        tensors[name] = tensors[name].astype(random.choice(["f8", "i4", "?", "f2"]))
    elif way == "infinite":
        tensors[name] = np.full(tensors[name].shape, random.choice([np.inf, np.nan, 1e30])).astype(tensors[name].dtype)
    elif "outline" in metadata:
        outline = json.loads(metadata["outline"])
        _alter(outline, random)
        metadata["outline"] = json.dumps(outline)
    else:
        metadata = {"format": "pt"}
    path.write_bytes(safetensors.numpy.save(tensors, metadata))
    return f"{way} {name}"


_STRUCTURED: dict[str, Callable[[Path, Random, Sequence[Path]], str]] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".toml": _toml,
    ".csv": _csv,
    ".parquet": _parquet,
    ".npy": _npy,
    ".sqlite": _sqlite,
    ".safetensors": _safetensors,
}
