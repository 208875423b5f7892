"""Keywords in photos and in the .xmp files beside them, as Lightroom, digiKam and others keep them: read and written.

Read are dc:subject, lr:hierarchicalSubject and digiKam:TagsList of XMP, and the keywords of IPTC. Of a hierarchy, as
Animals|Dog, each level is a keyword. Nothing in XMP is followed or expanded: a file with a DOCTYPE is refused.
"""

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from hashlib import md5
from itertools import islice, takewhile
from pathlib import Path
from typing import Literal, NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape, unescape

import numpy as np
from PIL import ImageFile, IptcImagePlugin

from onepair.data.class_rules import merge_spellings
from onepair.data.formats import register_reader
from onepair.data.images.decode import open_image
from onepair.data.images.image_files import walk
from onepair.data.label_table import LabelTable, Problem, Report, raise_problem
from onepair.data.tables.read_table import Spellings, Unlisted
from onepair.data.tables.sheet import is_sheet
from onepair.data.text_files import entries, exists, fold, is_file, labels_by_name
from onepair.errors import DataError
from onepair.files import write_atomically
from onepair.labels import NEGATIVE, POSITIVE
from onepair.remote import NonLocalPath

SUFFIX = ".xmp"
MOST = 16_000_000  # bytes of XMP
_LOOKED_AT = 100  # photos, to tell whether any has keywords
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_BAGS = {  # the elements that hold keywords: their namespaces, and what is between the levels of a hierarchy
    "dc:subject": ("http://purl.org/dc/elements/1.1/", ""),
    "lr:hierarchicalSubject": ("http://ns.adobe.com/lightroom/1.0/", "|"),
    "digiKam:TagsList": ("http://www.digikam.org/ns/1.0/", "/"),
}
_ELEMENTS = {f"{space} {name.partition(':')[2]}": name for name, (space, _) in _BAGS.items()}
_IN_JPEG = b"http://ns.adobe.com/xap/1.0/\0"
_MOST_IN_JPEG = 65_535 - 2 - len(_IN_JPEG)
_EMPTY = (
    f'<x:xmpmeta xmlns:x="adobe:ns:meta/">\n <rdf:RDF xmlns:rdf="{_RDF}">\n'
    '  <rdf:Description rdf:about="">\n  </rdf:Description>\n </rdf:RDF>\n</x:xmpmeta>\n'
)


class Keywords(NamedTuple):
    """What a photo is tagged with, as it is written: by the element of XMP, and in IPTC."""

    bags: Mapping[str, Sequence[str]]
    iptc: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """Every keyword and every level of a hierarchy, each once."""
        found = [*self.iptc]
        for bag, written in self.bags.items():
            found += [level for each in written for level in _levels(bag, each)]
        return list(dict.fromkeys(filter(None, map(str.strip, found))))


def _levels(bag: str, keyword: str) -> list[str]:
    between = _BAGS[bag][1]
    return keyword.split(between) if between else [keyword]


def parse_xmp(text: bytes, where: str) -> dict[str, list[str]]:
    """Return the keywords of each element of XMP that holds some.

    Raises:
        DataError: it is no XML, or has a DOCTYPE, with which files harm their readers.

    Examples:
        >>> parse_xmp(edit_xmp("", {"dog": "Animals|dog"}, set()).encode(), "a.xmp")
        {'dc:subject': ['dog']}
    """
    found: dict[str, list[str]] = {}
    path: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        path.append(name)
        if name == f"{_RDF} li" and bag():
            found.setdefault(bag(), []).append("")

    def bag() -> str:
        return _ELEMENTS.get(path[-3], "") if len(path) > 2 else ""

    def text_in(data: str) -> None:
        if path[-1] == f"{_RDF} li" and bag():
            found[bag()][-1] += data

    def refuse(*of: object) -> None:
        raise DataError(f"{where}: has a DOCTYPE, which XMP has none of; it is not read")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = start, lambda name: path.pop()
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = text_in, refuse
    try:
        parser.Parse(text.strip(b"\0 \r\n\t"), True)
    except expat.ExpatError as error:
        raise DataError(f"{where}: is no XMP ({error})") from None
    return found


def sidecar_of(photo: Path) -> Path | None:
    """Return the file beside a photo that has its XMP: photo.jpg.xmp or photo.xmp, in capitals too."""
    names = (f"{photo.name}{SUFFIX}", photo.stem + SUFFIX, photo.stem + SUFFIX.upper())
    return next((path for name in names if is_file(path := photo.with_name(name))), None)


def read_keywords(photo: Path, *, beside_first: bool = True) -> Keywords:
    """Read the keywords of a photo: those of the file beside it if that has any and comes first, else its own.

    Raises:
        DataError: the XMP is damaged.
    """
    if beside := sidecar_of(photo) if beside_first else None:
        with beside.open("rb") as file:
            text = file.read(MOST + 1)
        if len(text) > MOST:
            raise DataError(f"{beside}: is larger than any XMP")
        if bags := parse_xmp(text, str(beside)):
            return Keywords(bags)
    try:
        with open_image(photo) as image:
            own = image.info.get("xmp", b"")
            iptc = _iptc_keywords(image) if isinstance(image, ImageFile.ImageFile) else []
    except DataError:  # no image, which is said where it is decoded
        return Keywords({})
    return Keywords(parse_xmp(own, str(photo)) if own else {}, iptc)


def _iptc_keywords(image: ImageFile.ImageFile) -> list[str]:
    found = (IptcImagePlugin.getiptcinfo(image) or {}).get((2, 25), [])
    texts = found if isinstance(found, list) else [found]
    return [each.decode("utf-8" if _is_utf8(each) else "cp1252", "replace") for each in texts]


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def detect(path: Path) -> bool:
    """Whether a folder holds photos with keywords, and no table of labels."""
    if isinstance(path, NonLocalPath) or not exists(path) or not path.is_dir():
        return False
    if any(is_sheet(each) or each.suffix.lower() == ".json" for each in entries(path)):
        return False
    try:
        return any(read_keywords(photo).names for photo in islice(walk(path), _LOOKED_AT))
    except DataError:  # which is said when it is read
        return True


@register_reader(
    "keywords",
    detect=detect,
    description="photos with keywords, as of Lightroom and digiKam: in the photos (XMP, IPTC) or in .xmp beside them",
    layout="a folder of photos, some of which have keywords",
)
def read(
    path: Path, *, unlisted: Unlisted = "unknown", spellings: Spellings = "merge", report: Report = raise_problem
) -> LabelTable:
    """Read all photos in a folder and below: positive are their keywords, and each level of those in a hierarchy."""
    photos = list(walk(path))
    named: list[tuple[int, str, int]] = []
    for row, photo in enumerate(photos):
        try:
            named += [(row, name, POSITIVE) for name in read_keywords(photo).names]
        except DataError as error:
            report(Problem("bad XMP", photo.name, str(error).removeprefix(f"{photo}: ")))
    if not named:
        raise DataError(f"{path}: no photo has keywords, in itself or in an .xmp file beside it")
    classes, labels = labels_by_name(len(photos), named, complete=unlisted == "negative")
    table = LabelTable(
        files=tuple(photo.relative_to(path).as_posix() for photo in photos),
        classes=tuple(classes),
        labels=labels,
        split=np.full(len(photos), "train"),
        root=path,
    )
    return merge_spellings(table) if spellings == "merge" else table


# Writing


def edit_xmp(text: str, add: Mapping[str, str], remove: Set[str]) -> str:
    """Return XMP with more keywords and without some; all else in it stays as it is written.

    Args:
        text: the XMP, or "" for a new one.
        add: keywords, and each in its hierarchy, as Animals|Dog, for the elements that have one.
        remove: keywords, without regard to case; of a hierarchy, the levels above stay.
    """
    text = text or _EMPTY
    for bag, (space, between) in _BAGS.items():
        found = re.search(rf"<{bag}\b[^>]*>(.*?)</{bag}>", text, re.DOTALL)
        more = [path.replace("|", between) if between else name for name, path in add.items()]
        if found is None:
            if bag == "dc:subject" and more:
                element = f'<{bag} xmlns:dc="{space}"><rdf:Bag>{_items(more)}</rdf:Bag></{bag}>'
                text = _in_description(text, element)
            continue
        written = [unescape(each, {"&quot;": '"', "&apos;": "'"}) for each in _written(found[1])]
        kept = list(dict.fromkeys(filter(None, (_without_levels(bag, each, remove) for each in written))))
        kept += [each for each in more if fold(each) not in map(fold, kept)]
        if kept != written:
            start, end = found.span()
            opening = found[0][: found[0].index(">") + 1]
            text = f"{text[:start]}{opening}<rdf:Bag>{_items(kept)}</rdf:Bag></{bag}>{text[end:]}"
    return text


def _without_levels(bag: str, keyword: str, remove: Set[str]) -> str:
    """A keyword up to the level that is removed: of Animals|dog without dog, Animals."""
    levels = _levels(bag, keyword)
    kept = takewhile(lambda level: fold(level) not in remove, levels)
    return _BAGS[bag][1].join(kept) if len(levels) > 1 else "".join(kept)


def _written(inside: str) -> list[str]:
    return re.findall(r"<rdf:li\b[^>]*>(.*?)</rdf:li>", inside, re.DOTALL)


def _items(names: Iterable[str]) -> str:
    return "".join(f"<rdf:li>{escape(name)}</rdf:li>" for name in names)


def _in_description(text: str, element: str) -> str:
    """An element more in the first description."""
    found = re.search(r"<rdf:Description\b(?:[^>\"']|\"[^\"]*\"|'[^']*')*>", text)
    if found is None:
        raise DataError("has no rdf:Description")
    opening = found[0]
    if opening.endswith("/>"):
        opening, element = f"{opening[:-2]}>", f"{element}</rdf:Description>"
    return f"{text[: found.start()]}{opening}{element}{text[found.end() :]}"


def with_xmp(jpeg: bytes, xmp: bytes, *, more: Sequence[str] = (), without: Set[str] = frozenset()) -> bytes:
    """Return a JPEG with other XMP, and in IPTC, if it has any, with more keywords and without some.

    Its picture stays as it is, bit for bit.
    """
    if len(xmp) > _MOST_IN_JPEG:
        raise DataError("has more XMP than a JPEG can hold")
    *segments, rest = _segments(jpeg)
    kept = [jpeg[:2]]
    for segment in segments:
        if not (segment[1] == 0xE1 and segment[4:].startswith(_IN_JPEG)):
            kept.append(_with_iptc(segment, more, without) if segment[1] == 0xED else segment)
    place = next((i for i, each in enumerate(kept) if i and each[1] not in (0xE0, 0xE1)), len(kept))  # after EXIF
    body = _IN_JPEG + xmp
    kept.insert(place, b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body)
    return b"".join([*kept, rest])


def _segments(jpeg: bytes) -> Iterator[bytes]:
    """The segments of a JPEG before its picture, and the rest."""
    at = 2
    while jpeg[at : at + 1] == b"\xff" and jpeg[at + 1] not in (0xDA, 0xD9):
        (size,) = struct.unpack(">H", jpeg[at + 2 : at + 4])
        yield jpeg[at : at + 2 + size]
        at += 2 + size
    yield jpeg[at:]


def _same_picture(one: bytes, other: bytes) -> bool:
    """Whether two JPEGs differ in nothing but what they say of themselves."""
    pictures = ([each for each in _segments(jpeg) if each[1:2] not in (b"\xe1", b"\xed")] for jpeg in (one, other))
    return next(pictures) == next(pictures)


_PHOTOSHOP, _IPTC, _DIGEST = b"Photoshop 3.0\0", 0x0404, 0x0425  # a segment's beginning, and two of its resources


def _with_iptc(segment: bytes, more: Sequence[str], without: Set[str]) -> bytes:
    """A segment of Photoshop's with other keywords in its IPTC, and the digest by which programs trust that."""
    resources, rest = _resources(segment[4:])
    if _IPTC not in {number for number, _, _ in resources}:
        return segment
    found = {number: data for number, _, data in resources}
    found[_IPTC] = _with_keywords(found[_IPTC], more, without)
    if _DIGEST in found:
        found[_DIGEST] = md5(found[_IPTC], usedforsecurity=False).digest()
    body = _PHOTOSHOP
    for number, head, old in resources:
        data = found[number] if number in (_IPTC, _DIGEST) else old
        body += head + struct.pack(">I", len(data)) + data + bytes(len(data) % 2)
    if len(body) + len(rest) > 65_533:
        raise DataError("has more IPTC than a JPEG can hold")
    return segment[:2] + struct.pack(">H", len(body) + len(rest) + 2) + body + rest


def _resources(body: bytes) -> tuple[list[tuple[int, bytes, bytes]], bytes]:
    """The resources of a Photoshop segment: number, all before the size, and data; and what follows them."""
    found, at = [], len(_PHOTOSHOP)
    while body.startswith(_PHOTOSHOP) and body[at : at + 4] == b"8BIM":
        start = at + 6 + (body[at + 6] + 2) // 2 * 2  # the name has its length before it, and is padded
        (size,) = struct.unpack(">I", body[start : start + 4])
        data = body[start + 4 : start + 4 + size]
        if len(data) != size:
            raise DataError("has damaged IPTC")
        found.append((int.from_bytes(body[at + 4 : at + 6]), body[at:start], data))
        at = start + 4 + size + size % 2
    return found, body[at:]


def _with_keywords(iptc: bytes, more: Sequence[str], without: Set[str]) -> bytes:
    """IPTC with other keywords, which stand as 1C 02 19, their length, and the text."""
    kept, names, at, last = [b""], [], 0, 0
    while iptc[at : at + 1] == b"\x1c":
        (size,) = struct.unpack(">H", iptc[at + 3 : at + 5])
        if size & 0x8000:  # as no keyword has
            raise DataError("has IPTC of a form that cannot be completed")
        field = iptc[at : at + 5 + size]
        keyword = field[1:3] == b"\x02\x19"
        name = fold(field[5:].decode("utf-8" if _is_utf8(field[5:]) else "cp1252", "replace")) if keyword else ""
        if not (keyword and name in without):
            kept.append(field)
            names.append(name)
        last = len(kept) if keyword or field[1:2] <= b"\x02" else last
        at += 5 + size
    utf8 = b"\x1c\x01\x5a\x00\x03\x1b%G" in iptc  # says that texts are UTF-8
    for name in more:
        if fold(name) not in names:
            text = name.encode() if utf8 or not _is_latin(name) else name.encode("cp1252")
            kept.insert(last, b"\x1c\x02\x19" + struct.pack(">H", len(text)) + text)
            last += 1
    return b"".join([*kept, iptc[at:]])


def _is_latin(name: str) -> bool:
    return name.encode("cp1252", "ignore").decode("cp1252") == name


Form = Literal["xmp", "jpeg", "in-place"]


class Written(NamedTuple):
    """What became of the keywords of photos."""

    changed: int
    same: int  # photos that say all of it already
    left_out: Sequence[str]  # why, of photos that could not be written


def write_keywords(
    table: LabelTable,
    folder: Path,
    *,
    form: Form = "xmp",
    before_change: Callable[[bytes, bytes], object] = lambda old, new: None,
) -> Written:
    """Write the labels of photos as keywords, for each whose own keywords say something else.

    Nothing else in them changes. An .xmp file that is replaced stays beside the new one as .xmp.orig; no file that is
    another picture is replaced.

    Args:
        table: photos on this machine.
        folder: where to, by the names of the photos.
        form: "xmp" writes photo.jpg.xmp, "jpeg" copies with the keywords in them; "in-place" writes the keywords into
            the photos themselves, and what those were before into the folder.
        before_change: told what a photo holds and will hold, before it does.

    Raises:
        DataError: the images are no files here, or `folder` is theirs, and photos would be replaced.
    """
    if table.pixels is not None or table.ids or isinstance(table.root, NonLocalPath):
        raise DataError("keywords are written for photos that are files on this machine; choose another form")
    if form != "xmp" and folder.resolve() == table.root.resolve():
        raise DataError(f"{folder}: holds the photos themselves, which copies would replace; name another folder")
    spelled: dict[str, set[str]] = {name: {fold(name)} for name in table.classes}
    for other, name in table.aliases.items():
        spelled[name].add(fold(other))
    photos = {row: table.path(row) for row in range(len(table)) if is_file(table.path(row))}
    left_out, own = [], {}
    for row, photo in photos.items():
        try:
            own[row] = read_keywords(photo, beside_first=form == "xmp")
        except DataError as error:
            left_out.append(str(error))
    levels = [_levels(bag, each) for known in own.values() for bag, all_of in known.bags.items() for each in all_of]
    path_of = {fold(parts[-1]): "|".join(parts) for parts in levels if len(parts) > 1}
    changed = 0
    for row, known in own.items():
        names, labels = set(map(fold, known.names)), table.labels[row]
        shown = [name for name in _named(table, labels, POSITIVE) if not spelled[name] & names]
        denied = set().union(*(spelled[name] & names for name in _named(table, labels, NEGATIVE)))
        if not shown and not denied:
            continue
        add = {name: path_of.get(fold(name), name) for name in shown}
        try:
            file = Path(table.files[row])
            inside = Path(file.name) if file.is_absolute() or ".." in file.parts else file
            _write_one(photos[row], known, folder / inside, add, denied, form, before_change)
            changed += 1
        except (DataError, OSError, struct.error, IndexError) as error:  # the last two: of a damaged file
            left_out.append(f"{table.files[row]}: {error}")
    return Written(changed, len(own) - changed - len(left_out), left_out)


def _named(table: LabelTable, labels: Sequence[int], label: int) -> Iterator[str]:
    return (table.classes[column] for column in np.flatnonzero(np.asarray(labels) == label).tolist())


def _write_one(
    photo: Path,
    known: Keywords,
    place: Path,
    add: Mapping[str, str],
    remove: Set[str],
    form: Form,
    before_change: Callable[[bytes, bytes], object],
) -> None:
    beside = sidecar_of(photo) if form == "xmp" else None
    if beside is not None:
        text = beside.read_text(encoding="utf-8")
    else:
        with open_image(photo) as image:
            text = image.info.get("xmp", b"").decode("utf-8").strip("\0")
    inherited = {name: name for name in known.iptc if fold(name) not in remove} if not known.bags else {}
    edited = edit_xmp(text, {**inherited, **add}, remove)
    names = set(map(fold, Keywords(parse_xmp(edited.encode(), str(place))).names))
    if not set(map(fold, add)) <= names or names & remove:
        raise DataError("has XMP of a form that cannot be completed")
    place.parent.mkdir(parents=True, exist_ok=True)
    if form == "xmp":
        out = place.with_name(beside.name if beside else place.name + SUFFIX)
        original = out.with_name(f"{out.name}.orig")
        if out.exists() and out.read_bytes() != edited.encode() and not original.exists():
            write_atomically(original, out.read_bytes())
        write_atomically(out, edited.encode())
        return
    content = photo.read_bytes()
    if not content.startswith(b"\xff\xd8"):
        raise DataError("is no JPEG; --as xmp writes a file beside it")
    if place.exists() and (place.samefile(photo) or not _same_picture(place.read_bytes(), content)):
        raise DataError(f"{place} is there already, and would be overwritten")
    written = with_xmp(content, edited.encode(), more=list(add), without=remove)
    if form == "jpeg":
        write_atomically(place, written)
        return
    if photo.is_symlink():
        raise DataError("is a link, which stays one; --as xmp writes a file beside it")
    if not _same_picture(written, content):
        raise DataError("is a JPEG of a form that cannot be completed")
    if not place.exists():  # what it was before the first change is kept
        write_atomically(place, content)
    before_change(content, written)
    mode = photo.stat().st_mode
    write_atomically(photo, written)
    photo.chmod(mode)
