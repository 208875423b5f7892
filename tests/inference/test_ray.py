"""Images computed on a Ray cluster of two nodes on this machine, some of whose processes are killed."""

import os
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from onepair.data.formats.read import read_dataset
from onepair.data.images.blocks import stream_images
from onepair.data.images.decode import Preprocessing
from onepair.data.images.image_files import image_files
from onepair.errors import MissingExtraError, RayError
from onepair.features import extract_features
from onepair.inference import engine_selector as choice
from onepair.inference import ray_engine
from onepair.inference import ray_engine as ray_cluster
from onepair.inference.engine_selector import EngineSelector
from onepair.inference.export import export_onnx
from onepair.inference.prediction import load, write_predictions
from onepair.inference.ray_engine import Cluster
from onepair.models import create_backbone
from tests.cli.command import onepair
from tests.inference.deadly import Deadly
from tests.saved import SCENES, save_model
from tests.training.tiny import train_tiny

pytestmark = pytest.mark.filterwarnings("ignore:::ray.")

COUNT, BATCH = 48, 4
MOMENTS = 30_000  # of a hundredth of a second
TORN = (1, 8, 9, 10, 11, 47)  # one of a batch, a whole batch, the last
SCALE = Preprocessing(
    128, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)
)  # large: Ray keeps what is small out of the stores
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def nodes():
    """A cluster of a head and another node with one CPU each: both are needed, to read and to compute."""
    variables = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback alone
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster as Nodes

        nodes = Nodes()
        try:
            add_node(nodes, include_dashboard=False, include_log_monitor=False, no_monitor=True)
            nodes.other = add_node(nodes)
            yield nodes
        finally:
            nodes.shutdown()


def add_node(nodes, **options):
    """Another node. Its parts give up on each other after 15 seconds, which a busy machine may need: then another."""
    for _ in range(5):
        with suppress(Exception):  # a bare one, whose sentence names another cause
            return nodes.add_node(num_cpus=1, object_store_memory=80 * 2**20, **options)
    return nodes.add_node(num_cpus=1, object_store_memory=80 * 2**20, **options)


@pytest.fixture
def files(tmp_path):
    """Images of one colour each, which tells them apart; some are torn."""
    for number in range(COUNT):
        Image.new("RGB", (8, 8), (5 * number, number, 0)).save(tmp_path / f"{number:02}.png")
    for number in TORN:
        (tmp_path / f"{number:02}.png").write_bytes(b"torn")
    return sorted(tmp_path.glob("*.png"))


class Colours:
    """An engine that needs no torch: an image's first pixel, and how many images it was computed with."""

    batch_size = BATCH

    def __call__(self, inputs):
        return np.column_stack([inputs[:, 0, 0], np.full(len(inputs), len(inputs))]).astype(np.float32)


class Gated(Colours):
    """Says which process computes a batch, and waits at some of them until a file is there."""

    def __init__(self, folder, gates):
        self.folder, self.gates = folder, gates

    def __call__(self, inputs):
        first = int(inputs[0, 0, 0, 1])  # the number of the image
        (self.folder / f"{first}-{os.getpid()}").touch()
        for number in self.gates:
            if first >= number:
                wait_for((self.folder / f"open-{number}").exists)
        return super().__call__(inputs)


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    """Of one batch each; and a node knows this module, though it may not be found there."""
    from ray import cloudpickle

    monkeypatch.setattr(ray_engine, "IMAGES_PER_TASK", BATCH)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def over(nodes):
    with Cluster(nodes.address) as over:
        yield over


def outcome(engine, files, **options):
    """What comes of images, and what is reported of them."""
    problems = []
    blocks = list(stream_images(engine, iter(files), SCALE, report=problems.append, **options))
    scores, rows = (np.concatenate([block[part] for block in blocks]).tolist() for part in (0, 1))
    return scores, rows, [block.seen for block in blocks], [str(list(block.sources)) for block in blocks], problems


def test_rows_values_and_problems_are_those_of_one_process(over, files, monkeypatch):
    monkeypatch.setattr(ray_engine, "WINDOW", 28)
    given = [*files, np.full((8, 8, 3), 7, np.uint8)]
    engine = over(lambda _: Colours())(len(given))
    assert engine.batch_size == BATCH
    found, expected = outcome(engine, given, flip=True), outcome(Colours(), given, flip=True)
    assert found == expected
    assert found[1] == [row for row in range(COUNT + 1) if row not in TORN]
    assert list(stream_images(engine, [], SCALE)) == []


def test_a_killed_process_and_a_lost_node_change_nothing(nodes, over, files, tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    stream = stream_images(over(lambda _: Gated(notes, (16, 32)))(COUNT), files, SCALE, report=lambda _: None)
    found = []

    def take_until(number):
        while not found or found[-1].seen < number:
            found.append(next(stream))

    take_until(16)
    waiting = wait_for(lambda: list(notes.glob("16-*")))
    os.kill(int(waiting[0].name.split("-")[1]), signal.SIGKILL)
    (notes / "open-16").touch()
    take_until(32)
    wait_for(lambda: list(notes.glob("32-*")))
    nodes.remove_node(nodes.other, allow_graceful=False)
    nodes.other = add_node(nodes)
    (notes / "open-32").touch()
    found += stream
    assert len({note.name for note in notes.glob("16-*")}) > 1  # computed again, by another process
    rows = np.concatenate([block.rows for block in found]).tolist()
    assert rows == [row for row in range(COUNT) if row not in TORN]
    expected = outcome(Colours(), files)
    assert np.concatenate([block.scores for block in found]).tolist() == expected[0]
    assert [block.seen for block in found] == expected[2]


def wait_for(condition):
    """What a condition gives, once it does; a broken one ends the test."""
    for _ in range(MOMENTS):
        if found := condition():
            return found
        time.sleep(0.01)
    pytest.fail("what was waited for did not come")


def test_a_node_that_does_not_see_the_images_is_named(over, files):
    os.dup2(os.open(files[0], os.O_RDONLY), 900)  # under this name it is there for this process alone
    try:
        with pytest.raises(RayError, match=r"fd/900: can be read here, but not on the Ray node"):
            outcome(over(lambda _: Colours())(1), [Path("/proc/self/fd/900")])
    finally:
        os.close(900)


def test_what_is_read_apart_is_the_same_but_for_what_kills_who_decodes_it(files):
    apart = list(ray_engine._read_apart([files[0], Deadly(files[2]), files[1], files[3]], SCALE, True))
    assert apart.pop(1) == ray_engine.DEADLY
    here = list(ray_engine._read_here([files[0], files[1], files[3]], SCALE, True))
    for found, expected in zip(apart, here, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_an_image_that_kills_who_decodes_it_is_left_out_and_listed(over, files):
    deadly = [Deadly(files[5]), Deadly(files[7])]
    given = [*files[:5], deadly[0], files[6], deadly[1], *files[8:20]]
    _, rows, *_, problems = outcome(over(lambda _: Colours())(len(given)), given)
    assert rows == [row for row in range(20) if row not in (*TORN, 5, 7)]
    assert [(each.kind, each.where) for each in problems] == [
        ("unreadable image", str(files[row])) for row in (1, 5, 7, 8, 9, 10, 11)
    ]
    assert [each.what for each in problems[1:3]] == [ray_engine.DEADLY] * 2


def test_features_of_a_cluster_are_found_by_a_run(over, images, tmp_path, monkeypatch):
    torch.manual_seed(3)
    backbone = create_backbone("small-cnn", weights="none", image_size=16)
    table = read_dataset(str(images))
    options = {"table": table, "backbone": backbone, "preprocessing": backbone.preprocessing}
    engines = over(EngineSelector(backbone, cache=tmp_path))
    found = extract_features(**options, engines=engines, folder=tmp_path / "features")
    assert (found.new, found.there) == (len(table), 0)
    alone = extract_features(**options, engines=EngineSelector(backbone, cache=tmp_path), folder=tmp_path / "alone")
    np.testing.assert_array_equal(found.features, alone.features)
    monkeypatch.setattr(choice.EngineSelector, "__call__", lambda *_: pytest.fail("computed again"))
    train_tiny(images, out=tmp_path / "run", cache=tmp_path)


def test_predictions_of_a_cluster_are_those_of_one_process(over, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number, row in enumerate(SCENES.rows("test")):
        Image.fromarray(SCENES.pixels[row]).save(folder / f"{number:02}.png")
    (folder / "03.png").write_bytes(b"torn")
    export_onnx(save_model(tmp_path / "run"), tmp_path / "model.onnx")
    model = load(tmp_path / "model.onnx")
    for name, each in (("one", model), ("two", replace(model, engines=over(model.engines)))):
        assert write_predictions(each, image_files(folder), tmp_path / f"{name}.csv") == (39, 1)
    for suffix in (".csv", ".skipped.csv"):
        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


@pytest.fixture
def place():
    """A folder with a run, its images and a folder for temporary files: sockets must not have long names."""
    with tempfile.TemporaryDirectory(prefix="t-") as name:
        folder = Path(name)
        save_model(folder / "run")
        for each in ("images", "t"):
            (folder / each).mkdir()
        for number, row in enumerate(SCENES.rows("test")):
            Image.fromarray(SCENES.pixels[row]).save(folder / "images" / f"{number:02}.png")
        yield folder


def processes_of(folder):
    """Those that have a folder for their temporary files."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"TMPDIR={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(process.name)
    return found


def test_a_cluster_of_ones_own_computes_the_same_and_leaves_nothing(place, monkeypatch):
    variables = {"TMPDIR": str(place / "t"), "PYTHONPATH": str(ROOT / "src")}
    with monkeypatch.context() as patch:
        patch.chdir(place)
        write_predictions(load("run"), image_files(Path("images")), Path("one.csv"))
    done = onepair("predict", "run", "images", "--out", "two.csv", "--engine", "ray", cwd=place, **variables)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.splitlines()[:2] == ["starting Ray on this machine", "40 images predicted, in two.csv"]
    assert (place / "two.csv").read_bytes() == (place / "one.csv").read_bytes()
    wait_for(lambda: not processes_of(place / "t"))
    assert list((place / "t").iterdir()) == []


def test_ctrl_c_ends_a_cluster_of_ones_own(place):
    variables = {**os.environ, "TMPDIR": str(place / "t"), "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "onepair", "predict", "run", "images", "--out", "two.csv", "--engine", "ray"]
    # Shells switch Ctrl-C off for what they run in the background, these tests perhaps.
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, cwd=place, env=variables, stderr=subprocess.PIPE, text=True, preexec_fn=hears
    ) as process:
        assert process.stderr.readline() == "starting Ray on this machine\n"
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert said == "onepair: stopped by Ctrl-C; nothing is half-written; the same command begins anew\n"
    wait_for(lambda: not processes_of(place / "t"))


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1", "a cluster is HOST:PORT, as ray start prints it, or auto"),
        ("ray://127.0.0.1:10001", "a cluster is HOST:PORT, as ray start prints it, or auto"),
        ("127.0.0.1:99999999", "no cluster answers"),
        (None, "no cluster answers (.*refused.*); is it up?"),
    ],
)
def test_a_cluster_that_is_not_there_is_a_sentence(address, sentence):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(RayError, match=sentence):
        Cluster(address or f"127.0.0.1:{port}")


def test_a_server_that_is_no_cluster_is_a_sentence():
    class Web(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(1000)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.TCPServer(("127.0.0.1", 0), Web) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(RayError, match="no cluster answers \\(something else is there\\)"):
            Cluster(f"127.0.0.1:{server.server_address[1]}")


def test_a_full_disk_is_a_sentence(monkeypatch):
    monkeypatch.setattr(ray_cluster.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**6))
    with Cluster() as over, pytest.raises(RayError, match=r"Ray needs 1\.1 GB there, and 0\.0 are free"):
        over(lambda _: Colours())(COUNT)


def test_without_the_extra_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'onepair\[ray\]'"):
        Cluster()
