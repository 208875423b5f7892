"""Keywords of photos: what other programs wrote is read, and what is written changes nothing else."""

import struct
from hashlib import md5

import numpy as np
import pytest
from PIL import Image, IptcImagePlugin

from onepair.data.formats.read import read_dataset
from onepair.data.formats.xmp import edit_xmp, parse_xmp, read_keywords, sidecar_of, with_xmp, write_keywords
from onepair.errors import DataError
from onepair.labels import NEGATIVE, POSITIVE

HEAD = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
LIGHTROOM = (
    '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n'
    f'{HEAD}\n <rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" '
    'xmlns:lr="http://ns.adobe.com/lightroom/1.0/" xmlns:crs="http://ns.adobe.com/camera-raw-settings/1.0/" '
    'crs:Exposure2012="+0.35">\n'
    "  <dc:subject>\n   <rdf:Bag>\n    <rdf:li>dog</rdf:li>\n    <rdf:li>M&amp;Ms</rdf:li>\n   </rdf:Bag>\n"
    "  </dc:subject>\n  <lr:hierarchicalSubject>\n   <rdf:Bag>\n    <rdf:li>Animals|dog</rdf:li>\n   </rdf:Bag>\n"
    '  </lr:hierarchicalSubject>\n </rdf:Description>\n</rdf:RDF></x:xmpmeta>\n<?xpacket end="w"?>'
)
DIGIKAM = (
    f'{HEAD}<rdf:Description rdf:about="" xmlns:digiKam="http://www.digikam.org/ns/1.0/">'
    "<digiKam:TagsList><rdf:Seq><rdf:li>Tiere/Katze</rdf:li></rdf:Seq></digiKam:TagsList>"
    "</rdf:Description></rdf:RDF></x:xmpmeta>"
)


@pytest.fixture
def photos(tmp_path):
    """A photo with XMP in it, two with files beside them, one with IPTC, one without anything."""
    folder = tmp_path / "photos"
    (folder / "2024").mkdir(parents=True)
    random = np.random.default_rng(0)
    for name in ("a.jpg", "b.jpg", "2024/c d.jpg", "i.jpg", "z.jpg"):
        Image.fromarray(random.integers(0, 256, (9, 9, 3), np.uint8)).save(folder / name)
    jpeg = (folder / "a.jpg").read_bytes()
    (folder / "a.jpg").write_bytes(with_xmp(jpeg, LIGHTROOM.encode()))
    (folder / "b.jpg.xmp").write_text(DIGIKAM)
    (folder / "2024" / "c d.xmp").write_text(LIGHTROOM)
    record = b"".join(b"\x1c\x02\x19" + len(each).to_bytes(2) + each for each in (b"dog", "Grün".encode("cp1252")))
    record += b"" if len(record) % 2 == 0 else b"\0"
    block = b"Photoshop 3.0\0" + b"8BIM\x04\x04\0\0" + len(record).to_bytes(4) + record
    jpeg = (folder / "i.jpg").read_bytes()
    (folder / "i.jpg").write_bytes(jpeg[:2] + b"\xff\xed" + (len(block) + 2).to_bytes(2) + block + jpeg[2:])
    return folder


def named(table, file, label=POSITIVE):
    row = table.files.index(file)
    return {name for name, value in zip(table.classes, table.labels[row], strict=True) if value == label}


def test_keywords_of_other_programs_are_read_as_labels(photos):
    table = read_dataset(photos)
    assert set(table.classes) == {"dog", "M&Ms", "Animals", "Tiere", "Katze", "Grün"}
    assert named(table, "a.jpg") == named(table, "2024/c d.jpg") == {"dog", "M&Ms", "Animals"}
    assert named(table, "b.jpg") == {"Tiere", "Katze"}
    assert named(table, "i.jpg") == {"dog", "Grün"}
    assert named(table, "z.jpg") == set()


def labelled(table, **answers):
    """The table with answers by class, for each of the files that the class names with yes or no."""
    rows, columns, values = [], [], []
    for name, files in answers.items():
        for file, label in files.items():
            rows.append(table.files.index(file))
            columns.append(table.classes.index(name))
            values.append(label)
    return table.__class__(**{**vars(table), "labels": table.labels.with_entries(rows, columns, values)})


@pytest.mark.parametrize("copies", [False, True])
def test_answers_become_keywords_and_nothing_else_changes(photos, tmp_path, copies):
    before = {path: path.read_bytes() for path in photos.rglob("*") if path.is_file()}
    table = read_dataset(photos)
    answers = {
        "Katze": {"a.jpg": POSITIVE, "z.jpg": POSITIVE},
        "dog": {"2024/c d.jpg": NEGATIVE, "i.jpg": NEGATIVE, "z.jpg": POSITIVE},
    }
    out = tmp_path / "out"
    done = write_keywords(labelled(table, **answers), out, form="jpeg" if copies else "xmp")
    assert (done.changed, done.same, done.left_out) == ((5, 0, []) if copies else (4, 1, []))
    assert {path: path.read_bytes() for path in before} == before
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    if copies:
        assert files == {"a.jpg", "b.jpg", "2024/c d.jpg", "i.jpg", "z.jpg"}
        for file in files:
            np.testing.assert_array_equal(Image.open(out / file), Image.open(photos / file))
        found = {file: set(read_keywords(out / file).names) for file in files}
    else:
        assert files == {"a.jpg.xmp", "2024/c d.xmp", "i.jpg.xmp", "z.jpg.xmp"}
        names = {"a.jpg": "a.jpg.xmp", "2024/c d.jpg": "2024/c d.xmp", "i.jpg": "i.jpg.xmp", "z.jpg": "z.jpg.xmp"}
        bags = {file: parse_xmp((out / name).read_bytes(), name) for file, name in names.items()}
        assert bags["a.jpg"]["lr:hierarchicalSubject"] == ["Animals|dog", "Tiere|Katze"]
        found = {
            file: {level for bag in each.values() for name in bag for level in name.split("|")}
            for file, each in bags.items()
        }
    assert found["a.jpg"] >= {"dog", "M&Ms", "Animals", "Katze"}
    assert found["2024/c d.jpg"] == {"M&Ms", "Animals"}
    assert found["i.jpg"] == {"Grün"}
    assert found["z.jpg"] == {"Katze", "dog"}
    for _ in range(2):  # an earlier output is written again
        assert write_keywords(labelled(table, **answers), out, form="jpeg" if copies else "xmp").left_out == []


def test_files_beside_photos_are_kept_and_photos_are_never_replaced(photos):
    original = (photos / "2024" / "c d.xmp").read_text()
    table = labelled(read_dataset(photos), Katze={"2024/c d.jpg": POSITIVE})
    write_keywords(table, photos)
    assert (photos / "2024" / "c d.xmp.orig").read_text() == original
    changed = (photos / "2024" / "c d.xmp").read_text()
    assert 'crs:Exposure2012="+0.35"' in changed
    assert changed.startswith(original[: original.index("<dc:subject>")])
    assert sidecar_of(photos / "2024" / "c d.jpg").name == "c d.xmp"
    assert "Katze" in named(read_dataset(photos), "2024/c d.jpg")
    with pytest.raises(DataError, match="holds the photos themselves"):
        write_keywords(table, photos, form="jpeg")


def iptc_of(path):
    with Image.open(path) as image:
        resources = image.info["photoshop"]
        return IptcImagePlugin.getiptcinfo(image), resources


def test_keywords_go_into_the_photos_themselves_and_what_those_were_is_kept(photos, tmp_path):
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(photos / "p.png")
    (photos / "link.jpg").symlink_to(photos / "z.jpg")
    (photos / "i.jpg").chmod(0o640)
    before = {path: path.read_bytes() for path in photos.rglob("*.*") if not path.is_symlink()}
    pixels = {path.name: np.asarray(Image.open(path)) for path in before if path.suffix == ".jpg"}
    table = read_dataset(photos)
    answers = {
        "Katze": {"a.jpg": POSITIVE, "i.jpg": POSITIVE, "z.jpg": POSITIVE, "link.jpg": POSITIVE, "p.png": POSITIVE},
        "dog": {"a.jpg": NEGATIVE, "i.jpg": NEGATIVE},
    }
    originals, changes = tmp_path / "originals", []
    with pytest.raises(DataError, match="holds the photos themselves"):
        write_keywords(labelled(table, **answers), photos, form="in-place")
    done = write_keywords(
        labelled(table, **answers), originals, form="in-place", before_change=lambda *both: changes.append(both)
    )
    assert done.changed == 5
    assert sorted(done.left_out) == [
        "link.jpg: is a link, which stays one; --as xmp writes a file beside it",
        "p.png: is no JPEG; --as xmp writes a file beside it",
    ]
    changed = {path for path, content in before.items() if path.read_bytes() != content}
    assert changed == {photos / name for name in ("a.jpg", "b.jpg", "2024/c d.jpg", "i.jpg", "z.jpg")}
    for path in changed:
        assert (originals / path.relative_to(photos)).read_bytes() == before[path]
        assert (before[path], path.read_bytes()) in changes
        np.testing.assert_array_equal(Image.open(path), pixels[path.name])
        found = set(read_keywords(path, beside_first=False).names)
        assert found >= named(labelled(table, **answers), path.relative_to(photos).as_posix())
    assert "dog" not in read_keywords(photos / "a.jpg").names
    info, resources = iptc_of(photos / "i.jpg")
    assert info[(2, 25)] == ["Grün".encode("cp1252"), b"Katze"]
    assert (photos / "i.jpg").stat().st_mode & 0o777 == 0o640
    assert set(resources) == {0x0404}
    again = write_keywords(labelled(read_dataset(photos), **answers), originals, form="in-place")
    assert again.changed == 0
    write_keywords(labelled(read_dataset(photos), Katze={"a.jpg": NEGATIVE}), originals, form="in-place")
    assert (originals / "a.jpg").read_bytes() == before[photos / "a.jpg"]  # the first one


def test_iptc_of_photoshop_stays_trusted(photos):
    """Programs compare a digest to tell whether keywords of IPTC are older than those of XMP."""
    jpeg = (photos / "i.jpg").read_bytes()
    (size,) = struct.unpack(">H", jpeg[4:6])
    utf8 = b"\x1c\x01\x5a\x00\x03\x1b%G"
    caption = b"\x1c\x02\x78\x00\x03abc"
    iptc = utf8 + b"\x1c\x02\x19\x00\x03dog" + caption
    resources = [
        (0x0400, b"\x01x", b"odd"),
        (0x0404, b"\0\0", iptc),
        (0x0425, b"\0\0", md5(iptc, usedforsecurity=False).digest()),
    ]
    body = b"Photoshop 3.0\0" + b"".join(
        b"8BIM" + number.to_bytes(2) + name + len(data).to_bytes(4) + data + bytes(len(data) % 2)
        for number, name, data in resources
    )
    jpeg = jpeg[:2] + b"\xff\xed" + (len(body) + 2).to_bytes(2) + body + jpeg[4 + size :]
    xmp = edit_xmp("", {"Löwe": "Löwe"}, set()).encode()
    (photos / "i.jpg").write_bytes(with_xmp(jpeg, xmp, more=["Löwe", "Łoś"], without={"dog"}))
    info, found = iptc_of(photos / "i.jpg")
    assert info == {(1, 90): b"\x1b%G", (2, 25): ["Löwe".encode(), "Łoś".encode()], (2, 120): b"abc"}
    assert found[0x0400] == b"odd"
    new = utf8 + caption + b"\x1c\x02\x19\x00\x05" + "Löwe".encode() + b"\x1c\x02\x19\x00\x05" + "Łoś".encode()
    assert (found[0x0404], found[0x0425]) == (new, md5(new, usedforsecurity=False).digest())


def test_a_file_of_another_picture_stays(photos, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "z.jpg").write_bytes((photos / "b.jpg").read_bytes())
    table = labelled(read_dataset(photos), dog={"z.jpg": POSITIVE})
    done = write_keywords(table, out, form="jpeg")
    assert "is there already, and would be overwritten" in done.left_out[0]
    assert (out / "z.jpg").read_bytes() == (photos / "b.jpg").read_bytes()


BOMB = '<!DOCTYPE x [<!ENTITY a "dog"><!ENTITY b "&a;&a;&a;">]><x>&b;</x>'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [(BOMB, "has a DOCTYPE"), ("<x>", "is no XMP"), ("", "is no XMP"), ("\0\1", "is no XMP")],
)
def test_bad_xmp_is_one_sentence(photos, text, sentence):
    (photos / "b.jpg.xmp").write_text(text)
    problems = []
    table = read_dataset(photos, report=problems.append)
    assert [problem.kind for problem in problems if not problem.remark] == ["bad XMP"]
    assert sentence in problems[0].what
    assert named(table, "b.jpg") == set()


def test_nothing_outside_is_read(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    text = f'<!DOCTYPE x [<!ENTITY a SYSTEM "{secret.as_uri()}">]><x>&a;</x>'
    with pytest.raises(DataError, match="DOCTYPE"):
        parse_xmp(text.encode(), "a.xmp")


def test_new_xmp_in_every_form_of_a_description():
    for description in ('<rdf:Description rdf:about=""/>', "<rdf:Description rdf:about='a>b'>\n</rdf:Description>"):
        text = edit_xmp(f"{HEAD}{description}</rdf:RDF></x:xmpmeta>", {"a<b": "x|a<b"}, set())
        assert parse_xmp(text.encode(), "a.xmp") == {"dc:subject": ["a<b"]}
