"""URLs as paths, read by fsspec with retries and bounds, and what a failed request means.

Not universal-pathlib: its paths are no `pathlib.Path` since 0.3, join other origins, and have no retries or bounds.
"""

import errno
import os
import posixpath
import re
import stat
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from onepair.errors import MissingExtraError, RemoteError, UserError

_ADVICE = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or for a public bucket FSSPEC_S3_ANON=true",
    "gs": "run gcloud auth application-default login, or for a public bucket set FSSPEC_GS_TOKEN=anon",
}


class Failure(NamedTuple):
    """Why an attempt failed, in words, and what that means."""

    words: str
    number: int = errno.EIO
    passing: bool = False  # whether another attempt may do better
    of_server: bool = False  # whether it is about no object in particular
    counts: bool = True  # whether the server may be at fault


def failure_of(error: Exception, *, scheme: str, patience: str) -> Failure:
    """Return what an error means; by the names of its classes, since the libraries that raise it may not be there."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    words = " ".join(str(getattr(error, "message", "") or error).split())  # they may be several lines
    response = getattr(error.__cause__ or error, "response", None)
    code = response["Error"].get("Code", "") if isinstance(response, dict) and "Error" in response else ""
    status = int(getattr(error, "status", 0) or 0)
    if kinds & {"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "DefaultCredentialsError"}:
        return Failure(f"needs credentials, and there are none ({words}); {_ADVICE[scheme]}", of_server=True)
    if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken") or status == 401:
        advice = _ADVICE.get(scheme, "it asks for a name and a password")
        return Failure(f"refuses these credentials ({code or status}); {advice}", of_server=True)
    if code in ("NoSuchBucket", "InvalidBucketName") or "bucket does not exist" in words:
        return Failure("there is no such bucket", errno.ENOENT, of_server=True)
    if isinstance(error, OSError) and error.errno in (errno.EFBIG, errno.EOPNOTSUPP):
        return Failure(error.strerror or words, error.errno, counts=False)
    if isinstance(error, FileNotFoundError) or status in (404, 410):
        return Failure("No such file or directory", errno.ENOENT)
    if isinstance(error, PermissionError) or status == 403:
        return Failure("Permission denied", errno.EACCES)
    if kinds & {"ClientConnectorError", "EndpointConnectionError", "ConnectTimeoutError", "ConnectionTimeoutError"}:
        return Failure(f"cannot be reached ({words.rstrip('.')})", passing=True, of_server=True)
    if kinds & {"ClientPayloadError", "ResponseStreamingError", "IncompleteRead", "IncompleteReadError"}:
        return Failure("Ends before its end: the server gave less than it said", passing=True, counts=False)
    if isinstance(error, TimeoutError) or any("Timeout" in kind for kind in kinds):
        return Failure(f"No answer within {patience}", errno.ETIMEDOUT, passing=True)
    if "TooManyRedirects" in kinds:
        return Failure("Leads on and on, from one address to the next")
    if code in ("416", "InvalidRange") or status == 416:
        return Failure("Is empty", counts=False)
    busy = code in ("SlowDown", "500", "502", "503", "504", "InternalError", "ServiceUnavailable", "RequestTimeout")
    if busy or status == 429 or status >= 500 or kinds & {"HTTPClientError", "ClientConnectionError"}:
        return Failure(f"The server fails ({code or status or words})", passing=True)
    return Failure(words or type(error).__name__)


if sys.platform == "win32":
    from pathlib import WindowsPath as _LocalPath
else:
    from pathlib import PosixPath as _LocalPath

SCHEMES = {"s3": "s3fs", "gs": "gcsfs", "https": "aiohttp", "http": "aiohttp", "memory": "fsspec"}  # what reads each
AT_ONCE = 16  # objects that are read together: over a net, waiting is most of the work
LARGEST = 400_000_000  # bytes of an object that is read whole: an image of the most pixels, as a plain bitmap
PART = 1 << 25  # bytes of a larger one that are read together

CONNECT, READ = 5.0, 20.0  # seconds without any answer, after which an attempt has failed
ATTEMPTS = 4
PAUSE = 0.25  # seconds before the second attempt, and twice as many before each after that
IN_A_ROW = 5  # objects that a server fails to give, none between them given: it is the server then, not the object
LISTING_SECONDS = 600.0  # for which a listing counts
_FEW = 20  # files of a folder that are asked for one by one before it is listed

_URL = re.compile(r"[A-Za-z][\w+.:-]+://", re.ASCII)
_LISTED = ("s3", "gs")  # whose folders tell size and version of all that is in them

_Listing = dict[str, dict[str, Any]]  # what a server tells of the objects in a folder, by their names
_listings: dict[str, tuple[float, _Listing]] = {}  # by URL, with the time until which they count
_asked: Counter[str] = Counter()  # files of folders that were not
_failed: Counter[str] = Counter()  # objects in a row, by server
_one_at_a_time = threading.Lock()

T = TypeVar("T")
R = TypeVar("R")


class NonLocalPath(_LocalPath):
    """A path whose bytes are not a file of its own on this machine; subclasses say where they are."""

    def __str__(self) -> str:
        scheme, *parts = self.parts or ("",)
        return f"{scheme}//{'/'.join(parts)}" if scheme[:-1] in SCHEMES else super().__str__()

    def __fspath__(self) -> str:
        raise UserError(f"{self}: is no file on this machine, and this needs one; copy it here first")

    def version(self) -> str | None:
        """Return what changes whenever its bytes do; None if nothing tells that."""
        raise NotImplementedError

    def read_range(self, start: int, stop: int) -> bytes:
        """Return its bytes from `start` on and before `stop`, as far as there are any."""
        raise NotImplementedError

    def read_bytes(self, most: int = LARGEST) -> bytes:
        """Return all of its bytes; an `OSError` if they are more than `most`."""
        raise NotImplementedError

    def open(self, *_: Any, **__: Any) -> Any:
        """All of its bytes, as a file."""
        return BytesIO(self.read_bytes())

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Its size, its kind, and when it was changed, 0 if nobody tells."""
        raise NotImplementedError

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is something, be it only forbidden to look at it."""
        return self._kind() != 0

    def is_file(self, **_: Any) -> bool:
        return self._kind() == stat.S_IFREG

    def is_dir(self, **_: Any) -> bool:
        return self._kind() == stat.S_IFDIR

    def _kind(self) -> int:
        try:
            return stat.S_IFMT(self.stat().st_mode)
        except OSError as error:
            return 0 if isinstance(error, FileNotFoundError) else stat.S_IFREG

    def absolute(self) -> "NonLocalPath":
        return self


class RemotePath(NonLocalPath):
    """A URL.

    Whatever is joined to it stays on its server or in its bucket: a name may begin with `/` or be a whole URL of the
    same origin; any other URL is taken for a strange name, which is not there.
    """

    def __truediv__(self, key: Any) -> "RemotePath":
        if not is_remote(self):  # but relative to one
            return super().__truediv__(key)
        name = _in_one_piece(str(key)) if self.is_web else str(key)
        if name.startswith(f"{self.origin}/"):
            return RemotePath(name)
        return RemotePath(f"{self.origin}{name}") if name.startswith("/") else super().__truediv__(name)

    @property
    def scheme(self) -> str:
        return self.parts[0].removesuffix(":")

    @property
    def origin(self) -> str:
        """Its server or bucket.

        >>> RemotePath("s3://photos/a/b.jpg").origin
        's3://photos'
        """
        return "//".join(self.parts[:2])

    @property
    def url(self) -> str:
        """As it is asked for: `..` does not lead out of its bucket, and `#` is part of a file's name."""
        inside = posixpath.normpath("/" + "/".join(self.parts[2:])).lstrip("/")
        inside = inside.replace("#", "%23") if self.is_web else inside
        return f"{self.origin}/{inside}" if inside else self.origin

    @property
    def is_web(self) -> bool:
        return self.parts[:1] in (("http:",), ("https:",))

    @property
    def name(self) -> str:
        return super().name.partition("?")[0] if self.is_web else super().name

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        info = self._info()
        kind = stat.S_IFDIR if info["type"] == "directory" else stat.S_IFREG
        changed = _changed(info)
        return os.stat_result(
            (kind | 0o444, 0, 0, 1, 0, 0, info.get("size") or 0, changed, changed, changed),
            {"st_mtime_ns": int(changed * 10**9)},
        )

    def version(self) -> str | None:
        """Return the ETag if it is a strong one, else the time of change unless that is only just past."""
        info = self._info()
        tag = str(info.get("ETag") or info.get("etag") or "").strip('"')
        if tag and not tag.startswith("W/"):
            return f"tag {tag}"
        changed = _changed(info)
        return f"{info.get('size')} bytes of {changed}" if 0 < changed < time.time() - 2 else None

    def read_range(self, start: int, stop: int) -> bytes:
        bound = {"trace_request_ctx": stop} if self.is_web else {}
        content: bytes = self._ask(lambda system: system.cat_file(self.url, start=start, end=stop, **bound))
        # A web server may not know ranges, and give all.
        return content[start:stop] if len(content) > stop - start else content

    def read_bytes(self, most: int = LARGEST) -> bytes:
        within = {"trace_request_ctx": most} if self.is_web else {"start": 0, "end": most + 1}
        content: bytes = self._ask(lambda system: system.cat_file(self.url, **within))
        if len(content) > most:
            raise OSError(errno.EFBIG, f"Is larger than {most // 10**6:,} MB", str(self))
        return content

    def iterdir(self) -> Generator["RemotePath", None, None]:
        yield from (self / name for name in sorted(self._listing()))

    def _info(self) -> dict[str, Any]:
        """What its server tells of it. After a few of a folder's files, the whole folder is listed: that is quicker."""
        folder, _, name = self.url.rpartition("/")
        if self.scheme in _LISTED and self.url != self.origin:
            _asked[folder] += 1
            if _asked[folder] > _FEW or _kept_listing(folder) is not None:
                with _one_at_a_time:  # or all threads would list it
                    listing = RemotePath(folder)._listing()
                if name not in listing:
                    raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(self))
                return listing[name]
        found: dict[str, Any] = self._ask(lambda system: system.info(self.url))
        return found

    def _listing(self) -> _Listing:
        if self.is_web:
            raise UserError(f"{self}: a web server does not list its folders; name the files, or give a table of them")
        kept = _kept_listing(self.url)
        if kept is not None:
            return kept
        try:
            found = self._ask(lambda system: system.ls(self.url, detail=True))
        except FileNotFoundError:
            found = []
        listing = {str(info["name"]).rstrip("/").rpartition("/")[2]: info for info in found}
        if self.scheme in _LISTED:
            _listings[self.url] = time.monotonic() + LISTING_SECONDS, listing
        return listing

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        """Ask the server, a few times if it is only busy. What it cannot give is an `OSError` about this object."""
        for attempt in range(ATTEMPTS):
            try:
                answer = question(_system(self.scheme))
            except UserError:
                raise
            except Exception as caught:  # of botocore, aiohttp, gcsfs and others
                # Of a web server, fsspec says of all that fails that it is not there.
                hidden = caught.__cause__ if self.is_web and isinstance(caught, FileNotFoundError) else None
                error = hidden if isinstance(hidden, Exception) else caught
                if isinstance(error, UserError):
                    raise error from None
                failure = failure_of(error, scheme=self.scheme, patience=f"{READ:g} seconds, {ATTEMPTS} times")
                if not failure.passing or attempt == ATTEMPTS - 1:
                    raise self._given_up(failure) from error
                time.sleep(PAUSE * 2**attempt)
            else:
                _failed[self.origin] = 0
                return answer
        raise AssertionError

    def _given_up(self, failure: Failure) -> Exception:
        if failure.of_server:
            return RemoteError(f"{self.origin}: {failure.words}")
        if failure.number != errno.ENOENT:
            _failed[self.origin] += failure.counts
            if _failed[self.origin] >= IN_A_ROW:
                _failed[self.origin] = 0
                return RemoteError(
                    f"{self.origin}: {IN_A_ROW} objects in a row could not be read, the last of them {self} "
                    f"({failure.words}); is the server well, and may you read from it?"
                )
        return OSError(failure.number, failure.words, str(self))  # of the class that its number has


def _kept_listing(folder: str) -> _Listing | None:
    """The listing of a folder, if it is not too old."""
    until, listing = _listings.get(folder, (0.0, None))
    return listing if time.monotonic() < until else None


def _system(scheme: str) -> Any:
    """What reads URLs of a kind; fsspec keeps one for each process."""
    if find_spec(SCHEMES[scheme]) is None:
        how = "gcsfs" if scheme == "gs" else "'onepair[remote]'"
        raise MissingExtraError(f"{scheme}:// needs {SCHEMES[scheme]}; install with: pip install {how}")
    import fsspec

    options: dict[str, Any] = {}
    if scheme == "s3":  # patience is ours
        config = {"connect_timeout": CONNECT, "read_timeout": READ, "max_pool_connections": 2 * AT_ONCE}
        options = {"config_kwargs": {**config, "retries": {"total_max_attempts": 1}}, "use_listings_cache": False}
    if scheme in ("http", "https"):
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=READ)
        options = {"client_kwargs": {"timeout": timeout, "trust_env": True}, "get_client": _web_client}
    system = fsspec.filesystem(scheme, **options)
    if scheme == "s3":
        system.retries = 1
    return system


async def _web_client(**options: Any) -> Any:
    """A client that follows no redirection to another server, and reads no body that says to be larger than asked."""
    import aiohttp

    async def on_redirect(session: Any, context: Any, told: Any) -> None:
        to = told.url.join(type(told.url)(told.response.headers.get("Location", "")))
        if to.host != told.url.host or (to.scheme, told.url.scheme) == ("http", "https"):
            raise RemoteError(f"{told.url}: leads to another server, {to.origin()}; give that address if you trust it")

    async def on_answer(session: Any, context: Any, told: Any) -> None:
        most, length = context.trace_request_ctx, told.response.content_length or 0
        if most is not None and told.method == "GET" and length > most:
            parts = (errno.EOPNOTSUPP, "The server gives files only as a whole")
            raise OSError(
                *(parts if "Range" in told.headers else (errno.EFBIG, f"Is larger than {most // 10**6:,} MB"))
            )

    tracing = aiohttp.TraceConfig()
    tracing.on_request_redirect.append(on_redirect)
    tracing.on_request_end.append(on_answer)
    return aiohttp.ClientSession(trace_configs=[tracing], **options)


def _changed(info: dict[str, Any]) -> float:
    """When an object was changed, in seconds, 0 if nobody tells."""
    said = next((info[key] for key in ("LastModified", "mtime", "created", "Last-Modified") if info.get(key)), None)
    try:
        moment = parsedate_to_datetime(said) if isinstance(said, str) else said
    except ValueError:
        return 0.0
    return moment.timestamp() if isinstance(moment, datetime) else 0.0


def is_remote(thing: object) -> bool:
    """Whether something is a path whose bytes come over a net, be it in a tar or not."""
    return isinstance(thing, NonLocalPath) and "".join(thing.parts[:1]).removesuffix(":") in SCHEMES


def is_url(text: str | Path) -> bool:
    """Whether a text is a URL of any kind, also after it was taken for a path.

    >>> is_url("s3://b/x.csv"), is_url(Path("s3://b/x.csv")), is_url("C:/x.csv"), is_url("a/b.csv")
    (True, True, False, False)
    """
    return isinstance(text, RemotePath) or bool(re.match(r"[A-Za-z][\w+.:-]+:/", str(text), re.ASCII))


def as_path(source: str | Path) -> Path:
    """The path that a text names: a local one, or a URL; only those of `SCHEMES` are ever asked for.

    >>> as_path("s3://photos/labels.csv").parent / "a.jpg"
    RemotePath('s3://photos/a.jpg')
    """
    if isinstance(source, Path):
        return source
    if not _URL.match(source):
        return Path(source)
    scheme, _, rest = source.partition("://")
    scheme = scheme.lower()
    if scheme not in SCHEMES or not rest.strip("/"):
        raise UserError(f"{source}: URLs are read that begin with {', '.join(f'{each}://' for each in SCHEMES)}")
    server = re.split("[/?#]", rest)[0]
    if "@" in server:
        named = server.rpartition("@")[2]
        raise UserError(f"{scheme}://{named}: a URL is written to many files, so put name and password into ~/.netrc")
    return RemotePath(_in_one_piece(f"{scheme}://{rest}") if scheme in ("http", "https") else f"{scheme}://{rest}")


def _in_one_piece(url: str) -> str:
    """A URL whose query, as that of a signed one, is part of the last name: no slash in it ends a folder."""
    path, mark, query = url.partition("?")
    return f"{path}{mark}{query.replace('/', '%2F')}"


def all_at_once(function: Callable[[T], R], items: Iterable[T], *, remote: bool) -> Iterator[R]:
    """A function of each item, in their order: of remote ones many at once, of local ones one after the other."""
    return in_threads(function, items, threads=AT_ONCE) if remote else map(function, items)


def in_threads(
    function: Callable[[T], R], items: Iterable[T], *, threads: int, ahead: int | None = None
) -> Iterator[R]:
    """Yield a function of each item, in their order, while threads compute the next ones.

    Args:
        function: what to compute.
        items: of any number.
        threads: how many compute at once; 0 computes in this one.
        ahead: how many items are begun before their turn, by default four for each thread.
    """
    if threads == 0:
        yield from map(function, items)
        return
    left = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        begun = deque(pool.submit(function, item) for item in islice(left, ahead or 4 * threads))
        try:
            while begun:
                result = begun.popleft().result()
                begun.extend(pool.submit(function, item) for item in islice(left, 1))
                yield result
        finally:
            for each in begun:
                each.cancel()
