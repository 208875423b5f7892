"""The cases of the campaign of bad input: files of a small sample, spoiled, and a command to be run on them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.campaigns.mutations import ODD_VALUES, mutate
from tests.data.bombs import BOMBS

CHEAP = ["evaluate", "evaluate-validation", "decide", "compare", "labels", "audit", "predict", "explain", "review"]


class Case(NamedTuple):
    """A command, to be run in a folder where something was spoiled."""

    kind: str
    spoiled: list[str]
    command: list[str]


def tables(folder: Path, sample: Path, random: Random) -> Case:
    """A table that is spoiled, and checked or cleaned."""
    source, spoiled = _spoiled_table(folder, sample, random)
    options = random.choice([[], [], [], ["--decode", "--json"], ["--fix", str(folder / "clean.csv")]])
    return Case("tables", spoiled, ["check", str(source), "--folder", str(sample / "images"), *options])


def datasets(folder: Path, sample: Path, random: Random) -> Case:
    """A table that is spoiled, and used."""
    source, spoiled = _spoiled_table(folder, sample, random)
    command = random.choice(
        [
            ["features", source, "--backbone", "small-cnn", "--cache", folder / "cache", "--threads", "0"],
            ["evaluate", sample / "run", "--data", source, "--threads", "0"],
        ]
    )
    return Case("datasets", spoiled, [*map(str, command), "--folder", str(sample / "images")])


def _spoiled_table(folder: Path, sample: Path, random: Random) -> tuple[Path, list[str]]:
    names = ("labels.csv", "labels.parquet", "labels.jsonl", "instances.json", "tasks.json")
    for name in names:
        shutil.copyfile(sample / "images" / name, folder / name)
    source = folder / random.choice(["labels.csv", *names])
    return source, [mutate(source, random, [folder / name for name in names])]


def caches(folder: Path, sample: Path, random: Random) -> Case:
    """Features that are kept of earlier commands, and spoiled."""
    shutil.copytree(sample / "cache", folder / "cache")
    spoiled = [mutate(random.choice(_files(folder / "cache")), random, _files(sample / "run"))]
    source = sample / "images" / "labels.csv"
    command = ["features", source, "--backbone", "small-cnn", "--image-size", "16", "--cache", folder / "cache"]
    return Case("caches", spoiled, [*map(str, command), "--workers", "0"])


def images(folder: Path, sample: Path, random: Random) -> Case:
    """Images that are spoiled, or saved in another format and then spoiled."""
    shutil.copytree(sample / "images", folder / "images", copy_function=os.link)
    files, source = sorted((folder / "images").glob("*.png")), folder / "images" / "labels.csv"
    spoiled = []
    for victim in random.sample(files, random.choice([1, 1, 3])):
        spoiled.append(_reencode(victim, random))
        special = random.choice([_make_pipe, *[_make_bomb] * 3, *[None] * 30])
        spoiled.append(special(victim, random) if special else mutate(victim, random, _files(sample / "images")))
    command = random.choice(
        [
            ["check", source, "--decode"],
            ["predict", sample / "run", folder / "images"],
            ["predict", sample / "run", victim, "--out", folder / "out.jsonl"],
            ["predict", sample / "model.onnx", victim],
            ["features", source, "--backbone", "small-cnn", "--cache", folder / "cache", "--threads", "0"],
            ["explain", sample / "run", victim, "--out", folder / "out.png"],
        ]
    )
    return Case("images", spoiled, [*map(str, command)])


def runs(folder: Path, sample: Path, random: Random) -> Case:
    """A finished run whose files are spoiled."""
    shutil.copytree(sample / "run", folder / "run")
    files = [file for file in _files(folder / "run") if not file.name.startswith(".")]
    spoiled = [mutate(file, random, files) for file in random.sample(files, random.choice([1, 1, 1, 2]))]
    run = folder / "run"
    photo = sample / "images" / "00.png"
    commands: dict[str, list[object]] = {
        "evaluate": ["evaluate", run, "--threads", "0"],
        "evaluate-validation": ["evaluate", run, "--split", random.choice(["validation", "train"]), "--threads", "0"],
        "decide": ["decide", run, "--rule", random.choice(["f1", "precision", "count"])],
        "compare": ["compare", run, sample / "other", "--resamples", "100"],
        "labels": ["labels", run, "--out", folder / "out.csv"],
        "audit": ["audit", run, random.choice(["--summary", f"--sheet={folder / 'sheet.csv'}"])],
        "predict": ["predict", run, photo],
        "explain": ["explain", run, photo, "--out", folder / "out.png"],
        "review": ["review", run, "--port", "0"],
        "find": ["find", run, "--folds", "2", "--cache", sample / "cache", "--workers", "0"],
        "train": [
            "train",
            "--config",
            run / "config.toml",
            "--out",
            run,
            "--cache",
            sample / "cache",
            "--workers",
            "0",
        ],
    }
    name = random.choice([*CHEAP * 4, "find", "train"])
    return Case("runs", spoiled, [*map(str, commands[name])])


def stopped(folder: Path, sample: Path, random: Random) -> Case:
    """A run that was stopped, whose files are spoiled, and that is to go on."""
    shutil.copytree(sample / "stopped", folder / "run")
    shutil.copyfile(sample / "stopped" / "config.toml", folder / "settings.toml")
    files = [file for file in _files(folder / "run") if not file.name.startswith(".")]
    spoiled = [mutate(random.choice(files), random, files)]
    command = ["train", "--config", folder / "settings.toml", "--out", folder / "run"]
    return Case("stopped", spoiled, [*map(str, command), "--cache", str(sample / "cache"), "--workers", "0"])


def graphs(folder: Path, sample: Path, random: Random) -> Case:
    """An ONNX file that is spoiled."""
    shutil.copyfile(sample / "model.onnx", folder / "model.onnx")
    spoiled = [mutate(folder / "model.onnx", random, _files(sample / "run"))]
    return Case("graphs", spoiled, ["predict", str(folder / "model.onnx"), str(sample / "images" / "00.png")])


def settings(folder: Path, sample: Path, random: Random) -> Case:
    """A file of settings that is spoiled."""
    shutil.copyfile(sample / "settings.toml", folder / "settings.toml")
    spoiled = [mutate(folder / "settings.toml", random, _files(sample / "run"))]
    command = ["config", "--config", str(folder / "settings.toml")]
    return Case("settings", spoiled, command)


def words(folder: Path, sample: Path, random: Random) -> Case:
    """Odd words after the options of commands."""
    shutil.copytree(sample / "run", folder / "run")
    run, images = str(folder / "run"), str(sample / "images")
    odd = [str(value).encode(errors="replace").decode() for value in ODD_VALUES]
    odd += ["-5", "1000000000", f"{images}/labels.csv", f"{images}/00.png", run, images]
    word = random.choice(odd)
    command = random.choice(
        [
            ["check", word],
            ["check", f"{images}/labels.csv", f"--folder={word}"],
            ["check", f"{images}/labels.csv", f"--label-columns={word}"],
            ["features", f"{images}/labels.csv", "--backbone=small-cnn", f"--image-size={word}", f"--cache={folder}"],
            ["features", f"{images}/labels.csv", "--backbone=small-cnn", f"--cache={word}"],
            ["features", f"{images}/labels.csv", "--backbone=resnet10t", f"--weights={word}", f"--cache={folder}"],
            ["features", f"{images}/labels.csv", f"--backbone={word}", "--weights=none", f"--cache={folder}"],
            ["predict", run, word],
            ["predict", word, f"{images}/00.png"],
            ["predict", run, f"{images}/00.png", f"--out={word}"],
            ["explain", run, word, f"--out={folder}/out.png"],
            ["explain", run, f"{images}/00.png", f"--labels={word}", f"--out={folder}/out.png"],
            ["evaluate", run, f"--data={word}"],
            ["evaluate", word],
            ["decide", run, "--rule=precision", f"--precision={word}"],
            ["find", run, f"--folds={word}", f"--cache={sample}/cache", "--workers=0", "--no-maps"],
            ["labels", run, f"--out={word}"],
            ["audit", run, f"--images={word}", f"--sheet={folder}/sheet.csv"],
            ["audit", run, f"--answers={word}"],
            ["compare", run, word],
            ["config", "--set", f"linear.optimiser.lr={word}"],
            ["config", "--set", f"model.image_size={word}"],
            ["config", "--set", word],
            ["config", "--method", word],
            ["config", "--config", word],
        ]
    )
    return Case("words", [f"the word {word[:60]!r}"], command)


Prepare = Callable[[Path, Path, Random], Case]
LIGHT: dict[Prepare, int] = {tables: 50}  # how many of a hundred; they need no torch
HEAVY: dict[Prepare, int] = {settings: 8, runs: 20, images: 9, datasets: 3, graphs: 3, stopped: 1, caches: 3, words: 3}


def kind_of(number: int, seed: int) -> Prepare:
    kinds = LIGHT | HEAVY
    return Random(f"{seed} {number} kind").choices(list(kinds), list(kinds.values()))[0]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _reencode(file: Path, random: Random) -> str:
    """Save an image in another format, under the name that it has."""
    from PIL import Image

    kind = random.choice(["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"])
    with Image.open(file) as image:
        image.load()
    file.unlink()  # it is the sample's as well
    image.convert("RGB").save(file, kind)
    return f"{file.name}: saved as {kind}"


def _make_bomb(file: Path, random: Random) -> str:
    """An image of a few bytes that claims up to four billion pixels, or one that has as many as are allowed."""
    from PIL import Image

    if random.random() < 0.1:
        file.unlink()
        Image.new("RGB", (9000, 9900)).save(file, random.choice(["PNG", "GIF", "WEBP", "JPEG"]), lossless=True)
        return f"{file.name}: of 89 million pixels"
    kind, width, height = random.choice(list(BOMBS)), *random.choices([1, 300, 9_500, 20_000, 65_535], k=2)
    file.unlink()
    file.write_bytes(BOMBS[kind](width, height))
    return f"{file.name}: {kind} that claims {width} × {height}"


def _make_pipe(file: Path, random: Random) -> str:
    file.unlink()
    os.mkfifo(file)
    return f"{file.name}: replaced by a pipe"
