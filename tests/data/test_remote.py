"""URLs in place of paths: tables, images and vectors; servers that are slow, broken or gone."""

import io
import json
import pickle
import threading
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image

import onepair.remote
from onepair.data.formats.read import read_dataset
from onepair.data.formats.write import named_from
from onepair.data.images.batches import ImageReader, batch_specs
from onepair.data.images.blocks import image_blocks, images_of
from onepair.data.images.decode import Preprocessing, decode
from onepair.data.images.image_files import digests_of, image_files
from onepair.data.quality import find_problems
from onepair.data.vector_files import read_vectors
from onepair.errors import DataError, MissingExtraError, RemoteError, UserError, WriteError
from onepair.files import cache_folder
from onepair.remote import RemotePath, all_at_once, as_path
from onepair.review.photos import Pictures
from tests.servers import answer

pytestmark = pytest.mark.usefixtures("alone")

SMALL = Preprocessing(8, mean=(0, 0, 0), std=(1, 1, 1))


def jpeg(colour=0, side=24) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.full((side, side, 3), colour, np.uint8)).save(content, "JPEG")
    return content.getvalue()


def remember(objects, folder="memory://bucket"):
    for name, content in objects.items():
        fsspec.filesystem("memory").pipe_file(f"{folder}/{name}", content)


TABLE = b"file,labels\na.jpg,cat\nsub/b.jpg,dog;cat\n"


# Paths


def test_a_url_is_joined_and_cut_like_a_path():
    path = as_path("s3://bucket/data/labels.csv")
    assert (path.name, path.suffix, str(path.parent / "a b.jpg")) == ("labels.csv", ".csv", "s3://bucket/data/a b.jpg")
    assert str(path.relative_to(path.parent.parent)) == "data/labels.csv"
    assert pickle.loads(pickle.dumps(path)) == path  # noqa: S301 (our own)
    assert as_path("https://x.org/labels.csv?key=1").suffix == ".csv"
    assert as_path("https://x.org/labels.csv?key=1").url == "https://x.org/labels.csv?key=1"
    assert type(as_path("a/b.csv")) is type(Path("a/b.csv"))


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("/other/c.jpg", "s3://bucket/other/c.jpg"),
        ("s3://bucket/c.jpg", "s3://bucket/c.jpg"),
        ("../../../secret/c.jpg", "s3://bucket/secret/c.jpg"),
        ("s3://secret/c.jpg", "s3://bucket/data/s3:/secret/c.jpg"),
        ("s3://bucket-2/c.jpg", "s3://bucket/data/s3:/bucket-2/c.jpg"),
        ("http://169.254.169.254/c.jpg", "s3://bucket/data/http:/169.254.169.254/c.jpg"),
        ("file:///etc/passwd", "s3://bucket/data/file:/etc/passwd"),
    ],
)
def test_no_name_leads_out_of_the_bucket(name, url):
    assert (RemotePath("s3://bucket/data") / name).url == url


def test_a_query_is_no_folder(shelf):
    table = f"{shelf.url}/d/labels.csv?key=a/b.c&to=http://x.org/y"
    path = as_path(table)
    assert (path.name, path.suffix, str(path.parent)) == ("labels.csv", ".csv", f"{shelf.url}/d")
    shelf.things = {
        "/d/labels.csv?key=a/b.c&to=http://x.org/y": b"file,labels\na.jpg?key=c/d,cat\n/d/b%231.jpg,cat\nc#1.jpg,cat\n",
        "/d/a.jpg?key=c/d": jpeg(10),
        "/d/b%231.jpg": jpeg(20),
        "/d/c%231.jpg": jpeg(30),
    }
    read = read_dataset(table)
    assert [decode(read.path(row))[0, 0, 0] for row in range(3)] == [10, 20, 30]
    named = named_from(read, Path())
    assert [str(named.path(row)) for row in range(3)] == [str(read.path(row)) for row in range(3)]


def test_a_scheme_in_capitals_and_a_password():
    assert as_path("S3://Bucket/A.csv") == as_path("s3://Bucket/A.csv")
    with pytest.raises(UserError, match=r"^https://x\.org:80: a URL is written to many files, so put name and pass"):
        read_dataset("https://me:secret@x.org:80/labels.csv")
    assert str(as_path("s3://bucket/me@home.csv")) == "s3://bucket/me@home.csv"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "simplecache::s3://b/x", "zip://a::s3://b/x.zip", "ftp://x/y", "s3://"]
)
def test_only_some_urls_are_ever_asked_for(url):
    with pytest.raises(UserError, match="URLs are read that begin with s3://, gs://"):
        read_dataset(url)


def test_what_needs_a_local_file_refuses_a_url():
    with pytest.raises(UserError, match=r"s3://b/x\.csv: is no file on this machine"):
        open(as_path("s3://b/x.csv"))  # noqa: PTH123, SIM115


def test_a_missing_package_is_a_sentence(monkeypatch):
    monkeypatch.setattr(onepair.remote, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"s3:// needs s3fs; install with: pip install 'onepair\[remote\]'"):
        read_dataset("s3://b/labels.csv")
    with pytest.raises(MissingExtraError, match="gs:// needs gcsfs; install with: pip install gcsfs"):
        read_dataset("gs://b/labels.csv")


# Tables


def test_a_table_at_a_url_is_read_with_its_images():
    remember({"data/labels.csv": TABLE, "data/a.jpg": jpeg(), "data/sub/b.jpg": jpeg(90)})
    table = read_dataset("memory://bucket/data/labels.csv")
    assert table.classes == ("cat", "dog")
    assert [str(table.path(row)) for row in (0, 1)] == [
        f"memory://bucket/data/{name}" for name in ("a.jpg", "sub/b.jpg")
    ]
    assert decode(table.path(1))[0, 0, 0] == 90
    assert [each.kind for each in find_problems(table, images=True)] == ["in every image", "rare"]


def test_what_is_missing_or_broken_at_a_url_is_reported_as_elsewhere():
    remember({"labels.csv": TABLE, "a.jpg": jpeg()[:-200]})
    table = read_dataset("memory://bucket/labels.csv")
    found = {each.kind: str(each) for each in find_problems(table, images=True)}
    assert found["missing file"] == "labels.csv, line 3: no such file sub/b.jpg in memory://bucket"
    assert found["unreadable image"].startswith("a.jpg: cannot be read as an image: ")
    with pytest.raises(DataError, match=r"memory://bucket/no\.csv: there is no such file or folder"):
        read_dataset("memory://bucket/no.csv")


def test_urls_in_a_local_table_are_followed_where_the_user_says_so(tmp_path):
    remember({"a.jpg": jpeg(50)})
    (tmp_path / "labels.csv").write_text("file,labels\nmemory://bucket/a.jpg,cat\nmemory://other/a.jpg,cat\n")
    remember({"a.jpg": jpeg(60)}, "memory://other")
    plain = read_dataset(tmp_path / "labels.csv")
    problems = [str(each) for each in find_problems(plain) if each.kind == "missing file"]
    assert problems[0].endswith("as memory://bucket/a.jpg; --folder memory://bucket allows to read from there")
    table = read_dataset(tmp_path / "labels.csv", images="memory://bucket")
    assert decode(table.path(0))[0, 0, 0] == 50
    (problem,) = [str(each) for each in find_problems(table) if each.kind == "missing file"]
    assert "memory://other/a.jpg" in problem


def test_urls_in_a_local_table_still_mean_the_files_beside_it(tmp_path):
    (tmp_path / "a.jpg").write_bytes(jpeg(70))
    (tmp_path / "labels.csv").write_text("file,labels\nhttps://example.org/photos/a.jpg,cat\n")
    assert read_dataset(tmp_path / "labels.csv").path(0) == tmp_path / "a.jpg"


def test_a_folder_per_class_and_metadata_are_read_at_a_url():
    remember({"cat/1.jpg": jpeg(), "dog/2.jpg": jpeg()}, "memory://classes")
    assert read_dataset("memory://classes").files == ("cat/1.jpg", "dog/2.jpg")
    remember({"metadata.jsonl": b'{"file_name": "a.jpg", "labels": ["x"]}', "a.jpg": jpeg()}, "memory://face")
    assert str(read_dataset("memory://face").path(0)) == "memory://face/a.jpg"


def test_images_in_a_folder_at_a_url_come_in_order():
    remember({"b/2.jpg": jpeg(), "a.png": jpeg(), "notes.txt": b"", "b/1.jpg": jpeg()}, "memory://photos")
    found = [str(each) for each in image_files(as_path("memory://photos"))]
    assert found == ["memory://photos/a.png", "memory://photos/b/1.jpg", "memory://photos/b/2.jpg"]


def test_written_tables_name_urls_in_full(tmp_path):
    remember({"labels.csv": TABLE, "a.jpg": jpeg()})
    named = named_from(read_dataset("memory://bucket/labels.csv"), tmp_path)
    assert named.files == ("memory://bucket/a.jpg", "memory://bucket/sub/b.jpg")


def test_the_review_shows_images_of_the_tables_server_alone(tmp_path):
    remember({"labels.csv": TABLE + b"memory://other/c.jpg,cat\n", "a.jpg": jpeg(side=40)})
    remember({"c.jpg": jpeg()}, "memory://other")
    pictures = Pictures(read_dataset("memory://bucket/labels.csv"), cache=tmp_path / "thumbnails")
    assert pictures.frame(0)[:2] == (40, 40)
    assert Image.open(io.BytesIO(pictures.picture(0, 32).content)).size == (32, 32)
    with pytest.raises(DataError, match="cannot be read as an image"):
        pictures.frame(2)


# Vectors


def test_vectors_at_a_url_are_copied_once_for_each_version(monkeypatch, s3):
    def npy(value):
        file = io.BytesIO()
        np.save(file, np.full((2, 3), value, np.float32))
        return file.getvalue()

    url = s3({"clip.npy": npy(1), "shards/0.npy": npy(5), "shards/1.npy": npy(6), "bad.npy": b"no array"})
    monkeypatch.setattr("onepair.data.vector_files.PART", 64)
    reads = []
    plain = RemotePath.read_range
    monkeypatch.setattr(RemotePath, "read_range", lambda *args: reads.append(args) or plain(*args))
    assert read_vectors(f"{url}/clip.npy").take(np.array([1])).tolist() == [[1, 1, 1]]
    parts = len(reads)
    assert parts > 1
    read_vectors(f"{url}/clip.npy")
    assert len(reads) == parts
    s3({"clip.npy": npy(2)})
    assert read_vectors(f"{url}/clip.npy").take(np.array([0])).tolist() == [[2, 2, 2]]
    assert len(list((cache_folder() / "copies").glob("*/*.npy"))) == 1
    assert read_vectors(f"{url}/shards").take(np.arange(4))[:, 0].tolist() == [5, 5, 6, 6]
    with pytest.raises(DataError, match=rf"^{url}/bad\.npy: cannot be read as vectors"):
        read_vectors(f"{url}/bad.npy")


def test_vectors_that_cannot_be_read_are_a_sentence_about_them(monkeypatch, shelf, tmp_path):
    vectors = f"{shelf.url}/clip.npy"
    shelf.things["clip.npy"] = lambda request: answer(request, 200 if request.command == "HEAD" else 403, b"x" * 99)
    with pytest.raises(DataError, match=rf"^{vectors}: cannot be read \(Permission denied\)$"):
        read_vectors(vectors)
    shelf.things["clip.npy"] = b"x" * 99
    (tmp_path / "onepair").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(WriteError, match=r"onepair/copies.*: cannot be written"):
        read_vectors(vectors)


def test_an_array_is_named_after_a_url():
    file = io.BytesIO()
    np.savez(file, image=np.ones((1, 2)), text=np.zeros((1, 2)))
    remember({"clip.npz": file.getvalue()})
    assert read_vectors("memory://bucket/clip.npz:image").take(np.array([0])).tolist() == [[1, 1]]


def test_a_port_names_no_array(shelf):
    with pytest.raises(DataError, match=rf"^{shelf.url}/none\.npy: cannot be read \(No such file"):
        read_vectors(f"{shelf.url}/none.npy")
    assert shelf.asked


# S3


def test_a_second_look_reads_no_object_again(tmp_path, monkeypatch, s3):
    images = {f"{number:02}.jpg": jpeg(number) for number in range(30)}
    url = s3({**images, "labels.csv": "\n".join(["file,labels", *(f"{name},cat" for name in images)]).encode()})
    table = read_dataset(f"{url}/labels.csv")
    reads = []
    monkeypatch.setattr(RemotePath, "read_bytes", lambda *args: reads.append(args))
    first = list(digests_of(images_of(table, np.arange(30)), memory=tmp_path / "memory"))
    assert len(set(first)) == 30
    assert not reads
    s3({"07.jpg": jpeg(200)})
    assert list(digests_of(images_of(table, np.arange(30)), memory=tmp_path / "memory")) == first
    for folder, (until, listing) in onepair.remote._listings.items():  # time passes
        onepair.remote._listings[folder] = until - onepair.remote.LISTING_SECONDS, listing
    again = list(digests_of(images_of(table, np.arange(30)), memory=tmp_path / "memory"))
    assert [row for row in range(30) if first[row] != again[row]] == [7]


def test_processes_read_after_this_one_has(s3):
    url = s3({"labels.csv": b"file,labels\n1.png,cat\n2.png,cat\n", "1.png": jpeg(10), "2.png": jpeg(20)[:-300]})
    table = read_dataset(f"{url}/labels.csv")
    ((batch, problems),) = ImageReader(table, SMALL, workers=1).read(
        batch_specs(np.arange(2), batch_size=2, mirrored=None)
    )
    assert (batch.rows.tolist(), int(batch.images[0, 0, 0, 0])) == ([0], 10)
    assert [problem.where for problem in problems] == [f"{url}/2.png"]


def test_a_folder_of_many_is_listed_and_not_asked_for_one_by_one(monkeypatch, s3):
    url = s3({f"{number}.jpg": b"x" for number in range(40)})
    asked = []
    plain = RemotePath._ask
    monkeypatch.setattr(RemotePath, "_ask", lambda *args: asked.append(args) or plain(*args))
    assert [as_path(f"{url}/{number}.jpg").exists() for number in range(41)] == [True] * 40 + [False]
    assert len(asked) == onepair.remote._FEW + 1


def test_no_bucket_no_key_and_no_object(monkeypatch, s3):
    url = s3({"a.jpg": jpeg(), "empty.jpg": b""})
    with pytest.raises(RemoteError, match=r"^s3://no-such-bucket: there is no such bucket$"):
        read_dataset("s3://no-such-bucket/labels.csv")
    with pytest.raises(FileNotFoundError):
        as_path(f"{url}/b.jpg").read_bytes()
    with pytest.raises(DataError, match="Is empty"):
        decode(as_path(f"{url}/empty.jpg"))
    with pytest.raises(OSError, match="Is larger than 0 MB"):
        as_path(f"{url}/a.jpg").read_bytes(most=10)


def test_no_credentials_are_a_sentence(monkeypatch, shelf):
    monkeypatch.setenv("AWS_ENDPOINT_URL", shelf.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RemoteError, match=r"^s3://b: needs credentials, and there are none .* set AWS_ACCESS_KEY_ID"):
        read_dataset("s3://b/labels.csv")
    assert not shelf.asked


# Servers that fail, as S3 and as web servers


@pytest.fixture(params=["s3", "http"])
def at(request, shelf, endpoint):
    """The address of things on the shelf."""
    endpoint(shelf.url)
    return "s3://bucket" if request.param == "s3" else shelf.url


def blocks_of(paths):
    problems = []
    blocks = list(image_blocks(iter(paths), SMALL, batch_size=4, report=problems.append))
    return sum(len(block.rows) for block in blocks), [str(problem) for problem in problems]


def test_a_busy_server_is_asked_again(shelf, at):
    def busy_twice(request):
        answer(request, 503 if shelf.reads("a.jpg") < 3 else 200, b"" if shelf.reads("a.jpg") < 3 else jpeg(33))

    shelf.things["a.jpg"] = busy_twice
    assert decode(as_path(f"{at}/a.jpg"))[0, 0, 0] == 33
    assert shelf.reads("a.jpg") == 3


def test_a_body_that_ends_early_leaves_one_image_out(monkeypatch, shelf, at):
    monkeypatch.setattr(onepair.remote, "ATTEMPTS", 2)
    shelf.things = {
        "a.jpg": jpeg(),
        "b.jpg": lambda request: answer(request, 200, jpeg()[:50], length=500),
        "c.jpg": jpeg()[:-100],
    }
    good, problems = blocks_of(as_path(f"{at}/{name}.jpg") for name in "abcd")
    assert good == 1
    assert "b.jpg: cannot be read as an image: Ends before its end" in problems[0]
    assert "c.jpg: cannot be read as an image: " in problems[1]
    assert "d.jpg: cannot be read as an image: No such file or directory" in problems[2]
    assert shelf.reads("b.jpg") == 2


def test_an_object_that_never_comes_leaves_one_image_out(monkeypatch, shelf, at):
    monkeypatch.setattr(onepair.remote, "READ", 0.2)
    monkeypatch.setattr(onepair.remote, "ATTEMPTS", 2)
    shelf.things = {"a.jpg": jpeg(), "b.jpg": shelf.silent}
    good, problems = blocks_of(as_path(f"{at}/{name}.jpg") for name in "ab")
    assert good == 1
    assert len(problems) == 1
    assert "b.jpg: cannot be read as an image: No answer within 0.2 seconds, 2 times" in problems[0]


def test_a_server_that_refuses_everything_is_one_sentence(shelf, at):
    shelf.things[".jpg"] = lambda request: answer(request, 403)
    with pytest.raises(RemoteError, match=rf"^{at}: 5 objects in a row could not be read.*Permission denied"):
        blocks_of(as_path(f"{at}/{number}.jpg") for number in range(1000))
    assert len(shelf.asked) < 100


def test_some_refused_objects_are_left_out(shelf, at):
    shelf.things = {"7.jpg": lambda request: answer(request, 403), ".jpg": jpeg()}
    good, problems = blocks_of(as_path(f"{at}/{number}.jpg") for number in range(40))
    assert (good, len(problems)) == (36, 4)
    assert "Permission denied" in problems[0]


@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_a_dead_server_is_one_sentence(monkeypatch, shelf, endpoint, scheme):
    monkeypatch.setattr(onepair.remote, "ATTEMPTS", 2)
    shelf.server.server_close()  # whose port nobody has now
    endpoint(shelf.url)
    origin = "s3://b" if scheme == "s3" else shelf.url
    with pytest.raises(RemoteError, match=rf"^{origin}: cannot be reached"):
        read_dataset(f"{origin}/labels.csv")
    with pytest.raises(RemoteError, match=rf"^{origin}: cannot be reached"):
        blocks_of(as_path(f"{origin}/{number}.jpg") for number in range(1000))


def test_wrong_credentials_are_one_sentence(shelf, endpoint):
    endpoint(shelf.url)
    body = b"<Error><Code>InvalidAccessKeyId</Code><Message>no</Message></Error>"
    shelf.things["labels.csv"] = lambda request: answer(request, 403, body)
    with pytest.raises(RemoteError, match=r"^s3://b: refuses these credentials \(InvalidAccessKeyId\); set AWS_"):
        read_dataset("s3://b/labels.csv")


def test_a_redirection_to_another_server_is_not_followed(shelf):
    shelf.things["a.jpg"] = lambda request: answer(request, 302, Location="http://localhost:1/secret.jpg")
    with pytest.raises(RemoteError, match="leads to another server, http://localhost:1; give that address"):
        as_path(f"{shelf.url}/a.jpg").read_bytes()
    with pytest.raises(RemoteError, match="leads to another server"):
        as_path(f"{shelf.url}/a.jpg").exists()
    shelf.things["b.jpg"] = lambda request: answer(request, 302, Location="/c.jpg")
    shelf.things["c.jpg"] = jpeg(44)
    assert decode(as_path(f"{shelf.url}/b.jpg"))[0, 0, 0] == 44


def test_a_body_that_says_to_be_too_large_is_not_read(shelf):
    shelf.things["a.jpg"] = lambda request: answer(request, 200, b"", length=10**12)
    with pytest.raises(DataError, match="Is larger than 400 MB"):
        decode(as_path(f"{shelf.url}/a.jpg"))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("circle.csv", r"cannot be read \(Leads on and on, from one address to the next\)"),
        ("noise.csv", r"cannot be read \(Bad status line: [^\n]*\)"),
        ("0.tar", "is empty, or its server does not say how large it is"),
    ],
)
def test_odd_answers_are_one_sentence(shelf, name, sentence):
    shelf.things = {
        "circle.csv": lambda request: answer(request, 302, Location="/circle.csv"),
        "noise.csv": lambda request: request.wfile.write(b"no answer\r\n\r\n"),
        "0.tar": lambda request: request.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n"),
    }
    with pytest.raises(DataError, match=rf"^{shelf.url}/{name}: {sentence}$"):
        read_dataset(f"{shelf.url}/{name}")


def test_a_name_that_no_bucket_can_have(shelf, endpoint):
    endpoint(shelf.url)
    body = b"<Error><Code>InvalidBucketName</Code><Message>no</Message></Error>"
    shelf.things["labels.csv"] = lambda request: answer(request, 400, body)
    with pytest.raises(RemoteError, match=r"^s3://bucket: there is no such bucket$"):
        read_dataset("s3://bucket/labels.csv")


def test_a_web_server_that_gives_no_parts(shelf):
    tasks = [{"data": {"image": "a.jpg"}, "annotations": [{"result": [choice("cat")]}]}]
    shelf.things = {"tasks.json": json.dumps([*tasks, {"pad": "x" * 2000}]).encode(), "x.tar": bytes(3_000_000)}
    assert read_dataset(f"{shelf.url}/tasks.json", report=[].append).classes == ("cat",)
    with pytest.raises(DataError, match=r"x\.tar: cannot be read \(The server gives files only as a whole\)"):
        read_dataset(f"{shelf.url}/x.tar")


def choice(name):
    return {"from_name": "labels", "to_name": "image", "type": "choices", "value": {"choices": [name]}}


def test_a_web_server_lists_no_folders(shelf):
    with pytest.raises(UserError, match="a web server does not list its folders"):
        read_dataset(f"{shelf.url}/photos")


def test_images_are_read_together(shelf):
    """The server gives none before four are asked for."""
    together = threading.Barrier(4, timeout=30)

    def wait(request):
        together.wait()
        answer(request, 200, jpeg(20))

    shelf.things = {"labels.csv": b"file,labels\n" + b"".join(b"%d.jpg,cat\n" % n for n in range(8)), ".jpg": wait}
    table = read_dataset(f"{shelf.url}/labels.csv")
    assert blocks_of(images_of(table, np.arange(8))) == (8, [])
    reader = ImageReader(table, SMALL, workers=0)
    read = list(reader.read(batch_specs(np.arange(8), batch_size=4, mirrored=None)))
    assert [batch.rows.tolist() for batch, _ in read] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert not any(problems for _, problems in read)


def test_of_many_things_few_wait_at_a_time():
    taken = []
    items = (taken.append(number) or number for number in range(10_000))
    results = all_at_once(lambda number: -number, items, remote=True)
    for number in range(3):
        assert next(results) == -number
    assert len(taken) < 100
    assert [-number for number in range(3, 10_000)] == list(results)


def test_a_failure_leaves_the_rest_undone():
    done = []

    def fail(number):
        done.append(number)
        if number == 3:
            raise RemoteError("gone")

    with pytest.raises(RemoteError, match="gone"):
        list(all_at_once(fail, range(10_000), remote=True))
    assert len(done) < 100


def test_names_of_another_system_are_looked_for_together(shelf):
    """The server answers none before all four are asked for."""
    together, first = threading.Barrier(4, timeout=10), set()

    def wait(request):
        if "%5C" in request.path and request.path not in first:
            first.add(request.path)
            together.wait()
        answer(request, 404 if "%5C" in request.path else 200, b"" if "%5C" in request.path else jpeg(20))

    rows = b"".join(b"sub\\%d.jpg,cat\n" % number for number in range(4))
    shelf.things = {"labels.csv": b"file,labels\n" + rows, ".jpg": wait}
    assert read_dataset(f"{shelf.url}/labels.csv").files == tuple(f"sub/{number}.jpg" for number in range(4))
    assert not together.broken


def test_a_dead_server_stops_batches_too(monkeypatch, shelf):
    monkeypatch.setattr(onepair.remote, "ATTEMPTS", 1)
    shelf.things["labels.csv"] = b"file,labels\n1.jpg,cat\n2.jpg,cat\n"
    table = read_dataset(f"{shelf.url}/labels.csv")
    shelf.server.server_close()
    for workers in (0, 1):
        with pytest.raises(RemoteError, match=r"^http://127\.0\.0\.1:\d+: cannot be reached.*\)$"):
            list(
                ImageReader(table, SMALL, workers=workers).read(batch_specs(np.arange(2), batch_size=2, mirrored=None))
            )
