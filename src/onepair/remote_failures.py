"""What it means that a server does not give what it was asked for."""

import errno
from dataclasses import dataclass

_ADVICE = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or for a public bucket FSSPEC_S3_ANON=true",
    "gs": "run gcloud auth application-default login, or for a public bucket set FSSPEC_GS_TOKEN=anon",
}


@dataclass(frozen=True)
class Failure:
    """Why an attempt failed, in words, and what that means."""

    words: str
    number: int = errno.EIO
    passing: bool = False  # whether another attempt may do better
    of_server: bool = False  # whether it is about no object in particular
    counts: bool = True  # whether the server may be at fault


def failure_of(error: Exception, *, scheme: str, patience: str) -> Failure:
    """What an error of a library means; by the names of its classes, since those libraries may not be there.

    Args:
        error: what it raised.
        scheme: of the URL that was asked for.
        patience: how long was waited for an answer, in words.
    """
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
