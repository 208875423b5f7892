"""Servers on this machine: moto's S3 in a process of its own, and one that is slow, broken or rude on request."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import onepair.remote

MOTO = """
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="session")
def moto():
    """The address of an S3 server."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", MOTO], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def alone(monkeypatch, tmp_path_factory):
    """Nothing that was learned of servers before, no credentials but those of a test, and no address but loopback."""
    import s3fs
    from fsspec.implementations.memory import MemoryFileSystem

    for name in ("_listings", "_asked", "_failed"):
        monkeypatch.setattr(onepair.remote, name, type(getattr(onepair.remote, name))())
    monkeypatch.setattr(onepair.remote, "PAUSE", 0.0)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path_factory.mktemp("alone")
    nowhere = str(folder / "none")
    settings = {"AWS_CONFIG_FILE": nowhere, "AWS_SHARED_CREDENTIALS_FILE": nowhere, "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in {**settings, "AWS_DEFAULT_REGION": "us-east-1", "XDG_CACHE_HOME": str(folder)}.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    MemoryFileSystem.store.clear()
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def endpoint(monkeypatch):
    """Makes an address the one that s3:// means."""

    def use(address):
        for name, value in {"ENDPOINT_URL": address, "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)

    return use


@pytest.fixture
def s3(moto, endpoint, request):
    """Put objects into a bucket of the test's own; its URL is what this returns."""
    import boto3

    endpoint(moto)
    client = boto3.client("s3")
    bucket = f"b{abs(hash(request.node.nodeid)):x}"
    client.create_bucket(Bucket=bucket)

    def put(objects):
        for key, content in objects.items():
            client.put_object(Bucket=bucket, Key=key, Body=content)
        return f"s3://{bucket}"

    yield put
    client.close()


class Shelf:
    """What a server has, by the ends of paths: bytes, or a function of the request that answers itself."""

    def __init__(self):
        self.things, self.asked = {}, []
        self.closing = threading.Event()
        shelf = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                shelf.asked.append((self.command, self.path))
                thing = next((each for end, each in shelf.things.items() if self.path.endswith(end)), None)
                if callable(thing):
                    thing(self)
                else:
                    answer(self, 404 if thing is None else 200, thing or b"")

            do_HEAD = do_GET  # noqa: N815 (the server's own names)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def reads(self, end):
        return sum(method == "GET" and path.endswith(end) for method, path in self.asked)

    def silent(self, request):
        """Never answers."""
        self.closing.wait()

    def close(self):
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def answer(request, status, content=b"", *, length=None, **headers):
    """Send an answer, perhaps with a length that is not its own."""
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.send_header("Content-Length", str(len(content) if length is None else length))
    request.end_headers()
    if request.command == "GET":
        request.wfile.write(content)
    request.close_connection = True


@pytest.fixture
def shelf():
    server = Shelf()
    yield server
    server.close()
