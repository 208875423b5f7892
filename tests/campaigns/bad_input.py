"""Bad input, by the thousand: every command either works or answers with a sentence and exit code 2.

    python -m tests.campaigns.bad_input --cases 10000 --seed 0

Each case spoils files of a copy of a small dataset or run, and runs a command on it in a process of its own that may
take 20 seconds and 2 GB. What ends otherwise is printed with its seed, and `--case N` repeats it alone.
"""

import argparse
import collections
import contextlib
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.campaigns.forked import in_a_child, onepair
from tests.campaigns.mutations import ODD_VALUES, mutate
from tests.data.bombs import BOMBS

SECONDS = 20
MEMORY = 2 << 30  # bytes

CHEAP = ["evaluate", "evaluate-validation", "decide", "compare", "labels", "audit", "predict", "explain", "review"]


class Case(NamedTuple):
    """A command, to be run in a folder where something was spoiled."""

    kind: str
    spoiled: list[str]
    command: list[str]


class Outcome(NamedTuple):
    """How a case ended."""

    code: int | None  # None: it did not end in time
    seconds: float
    memory: int  # bytes at most
    said: str

    @property
    def mistake(self) -> str | None:
        """What is wrong with it, if anything."""
        if self.code is None:
            return f"hangs for {SECONDS} s"
        if self.code not in (0, 2) or "Traceback" in self.said:
            return f"ends with {self.code}"
        if self.code == 2 and not self.said.strip():
            return "says nothing"
        if self.memory > MEMORY:
            return f"takes {self.memory / 1e9:.1f} GB"
        return None


# Cases


def tables(folder: Path, sample: Path, random: Random) -> Case:
    """A table that is spoiled, and checked or cleaned."""
    source, spoiled = _spoiled_table(folder, sample, random)
    options = random.choice([[], [], [], ["--images", "--json"], ["--fix", str(folder / "clean.csv")]])
    return Case("tables", spoiled, ["check", str(source), "--folder", str(sample / "images"), *options])


def datasets(folder: Path, sample: Path, random: Random) -> Case:
    """A table that is spoiled, and used."""
    source, spoiled = _spoiled_table(folder, sample, random)
    command = random.choice(
        [
            ["features", source, "--backbone", "small-cnn", "--cache", folder / "cache", "--workers", "0"],
            ["evaluate", sample / "run", "--data", source, "--workers", "0"],
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
    """What is kept of earlier commands, and spoiled: features, and predictions that were interrupted."""
    if random.random() < 0.5:
        shutil.copytree(sample / "cache", folder / "cache")
        spoiled = [mutate(random.choice(_files(folder / "cache")), random, _files(sample / "run"))]
        source = sample / "images" / "labels.csv"
        command = ["features", source, "--backbone", "small-cnn", "--image-size", "16", "--cache", folder / "cache"]
        return Case("caches", spoiled, [*map(str, command), "--workers", "0"])
    shutil.copytree(sample / "begun", folder, dirs_exist_ok=True)
    spoiled = [mutate(random.choice(_files(folder)), random, _files(sample / "run"))]
    command = ["predict", sample / "run", sample / "images", "--out", folder / "out.csv"]
    return Case("caches", spoiled, [*map(str, command)])


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
            ["check", source, "--images"],
            ["predict", sample / "run", folder / "images"],
            ["predict", sample / "run", victim, "--out", folder / "out.jsonl"],
            ["predict", sample / "model.onnx", victim],
            ["features", source, "--backbone", "small-cnn", "--cache", folder / "cache", "--workers", "0"],
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
        "evaluate": ["evaluate", run, "--workers", "0"],
        "evaluate-validation": ["evaluate", run, "--split", random.choice(["validation", "train"]), "--workers", "0"],
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


# Running them


def run_case(number: int, seed: int, sample: Path, folder: Path) -> tuple[Case, Outcome]:
    """Prepare a case in a folder, and run its command in a process of its own."""
    random = Random(f"{seed} {number}")
    case = kind_of(number, seed)(folder, sample, random)
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_command(case.command, folder)
    watched, ended, seconds = os.pidfd_open(child), False, 0.0
    while not ended and seconds < SECONDS:
        ended = bool(select.select([watched], [], [], SECONDS - seconds)[0])
        seconds = time.monotonic() - started - _queued(child)
    os.close(watched)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status) if ended else None
    said = (folder / ".said").read_text(errors="replace")
    if (folder / "unpickled").exists():
        code, said = 1, "a pickle was opened"
    return case, Outcome(code, seconds, used.ru_maxrss * 1024, said)


def _queued(process: int) -> float:
    """The seconds for which it could have gone on, had a processor been free: a busy machine is no hang."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0  # not every Linux counts them


def _be_the_command(command: list[str], folder: Path) -> None:
    """In the child: run the command within its bounds, and end."""
    code = 1
    try:
        os.chdir(folder)
        output = os.open(".said", os.O_CREAT | os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY,) * 2)
        if command[0] in ("review", "audit"):
            _visit_instead_of_serving()
        code = onepair(*command)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _address_space() -> int:
    """What this process has reserved, most of which libraries never touch."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _visit_instead_of_serving() -> None:
    """The review page is visited in the same process: an error there is an error of the command."""
    from onepair.review import server

    def visit(app, listener):
        from starlette.testclient import TestClient

        listener.socket.close()
        client = TestClient(app)
        for address in ("/", "/suggestion/1", "/grid", "/done", "/classes", "/image/0", "/map/1"):
            client.get(address)

    server.serve = visit


def campaign(cases: Sequence[int], seed: int) -> int:
    """Run the cases, print what went wrong and a summary, and return how many went wrong."""
    wrong, counts, codes = 0, collections.Counter[str](), collections.Counter[int | None]()
    slowest, largest = 0.0, 0
    with tempfile.TemporaryDirectory(prefix="onepair-campaign-") as place:
        sample = Path(place) / "sample"
        sample.mkdir()
        in_a_child(lambda: _write_sample(sample))
        _warm_up(sample, light=True)
        light = [number for number in cases if kind_of(number, seed) in LIGHT]
        for number in [*light, None, *(set(cases) - set(light))]:
            if number is None:
                _warm_up(sample, light=False)
                continue
            folder = Path(place) / f"case-{number}"
            folder.mkdir()
            case, outcome = run_case(number, seed, sample, folder)
            counts[case.kind] += 1
            codes[outcome.code] += 1
            slowest, largest = max(slowest, outcome.seconds), max(largest, outcome.memory)
            if outcome.mistake:
                wrong += 1
                spoiled = "; ".join(case.spoiled)
                print(f"case {number}: {outcome.mistake}: onepair {' '.join(case.command)}\n  {spoiled}", flush=True)
                print("  " + "\n  ".join(outcome.said.strip().splitlines()[-6:]), flush=True)
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{counts.total():,} cases: {', '.join(f'{count:,} {kind}' for kind, count in counts.most_common())}")
    print(f"worked: {codes[0]:,}, answered with a sentence: {codes[2]:,}, wrong: {wrong:,}")
    print(f"the slowest took {slowest:.1f} s, the largest {largest / 1e9:.2f} GB")
    return wrong


def _write_sample(folder: Path) -> None:
    from tests.campaigns.sample import write_sample

    write_sample(folder, onepair)


def _warm_up(sample: Path, *, light: bool) -> None:
    """Import and compute once what every case would begin with."""
    run, source, photo = sample / "run", sample / "images" / "labels.csv", sample / "images" / "00.png"
    commands: list[list[object]] = [["check", source, "--images"]]
    if not light:
        for module in ("onepair.finding.finding", "onepair.review.app", "onepair.review.audit_app"):
            import_module(module)
        commands = [
            ["config", "--config", sample / "settings.toml"],
            ["evaluate", run],
            ["compare", run, sample / "other", "--resamples", "100"],
            ["explain", run, photo, "--out", sample / "out.png"],
            ["predict", run, photo],
            ["predict", sample / "model.onnx", photo],
            ["labels", run, "--out", sample / "out.csv"],
        ]
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):  # noqa: PTH123
        for command in commands:
            if onepair(*command):
                raise RuntimeError(f"the sample is not sound: {command}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="this one alone")
    asked = parser.parse_args()
    cases = range(asked.cases) if asked.case is None else [asked.case]
    sys.exit(1 if campaign(cases, asked.seed) else 0)


if __name__ == "__main__":
    main()
