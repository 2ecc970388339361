import codecs
from itertools import zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookupdec.edit.textio import Document, read_document, split_lines
from lookupdec.errors import FileError

# Everything that some tool takes for a line break or throws away, and what takes two UTF-16 units.
ODD = " \t\f\v\x1c\x1d\x1e\x85\u00a0\u2028\u2029\ufeff\u200b\ufffdé\U0001f600e\u0301&<`x"
CONTENTS = st.text(st.sampled_from(ODD), max_size=4)
ENDINGS = st.sampled_from(["\n", "\r\n", "\r"])
LINES = st.lists(st.tuples(CONTENTS, ENDINGS), min_size=1, max_size=12)
ENCODINGS = st.sampled_from(
    [
        ("utf-8", b""),
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
    ]
)


def joined(lines: list[tuple[str, str]]) -> str:
    # "a\r" followed by an empty line with "\n" is one CRLF: no file can hold the two of them apart.
    parts = []
    for (content, ending), following in zip_longest(lines, lines[1:]):
        if ending == "\r" and following is not None and following == ("", "\n"):
            ending = "\r\n"
        parts.append(content + ending)
    return "".join(parts)


@given(LINES, st.booleans(), ENCODINGS)
def test_an_identity_answer_gives_identical_bytes(lines, final_newline, stored):
    text = joined(lines) if final_newline else joined(lines) + "end"
    if text.startswith("\ufeff"):
        text = "x" + text  # a first U+FEFF is the byte order mark
    encoding, bom = stored
    data = bom + text.encode(encoding)
    document = Document.from_bytes(data)
    assert "\r" not in document.shown
    assert document.encode(document.restore(document.shown)) == data


@given(LINES, st.booleans(), ENCODINGS, st.data())
def test_a_changed_line_alters_that_line_alone(lines, final_newline, stored, data):
    document = Document(joined(lines) if final_newline else joined(lines) + "end", *stored)
    number = data.draw(st.integers(0, len(document.lines) - 1))
    shown = split_lines(document.shown)
    shown[number] = ("a new line", shown[number][1])
    expected = list(document.lines)
    expected[number] = ("a new line", expected[number][1])
    new = document.restore("".join(content + ending for content, ending in shown))
    assert split_lines(new) == expected
    assert document.encode(new) == document.bom + new.encode(document.encoding)


@given(LINES, st.data())
def test_an_added_line_takes_the_dominant_ending_and_changes_no_other(lines, data):
    document = Document(joined(lines))
    number = data.draw(st.integers(0, len(document.lines)))
    shown = split_lines(document.shown)
    shown.insert(number, ("a new line", "\n"))
    expected = list(document.lines)
    # A CR right before a kept empty line with LF would make one CRLF of the two.
    meets_lf = document.dominant_ending == "\r" and expected[number : number + 1] == [("", "\n")]
    expected.insert(number, ("a new line", "\n" if meets_lf else document.dominant_ending))
    assert split_lines(document.restore("".join(c + e for c, e in shown))) == expected


@given(LINES, LINES)
def test_restoring_keeps_every_line_of_the_new_text(lines, new_lines):
    new_shown = Document(joined(new_lines)).shown
    restored = Document(joined(lines)).restore(new_shown)
    assert [content for content, _ in split_lines(restored)] == [
        content for content, _ in split_lines(new_shown)
    ]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a", [("a", "")]),
        ("a\r\n\rb\n", [("a", "\r\n"), ("", "\r"), ("b", "\n")]),
        ("a\r\r\nb", [("a", "\r"), ("", "\r\n"), ("b", "")]),
        ("a\u2028b\x0cc\x85d\n", [("a\u2028b\x0cc\x85d", "\n")]),
    ],
)
def test_only_lf_crlf_and_cr_end_a_line(text, lines):
    assert split_lines(text) == lines


def test_a_line_appended_after_an_unfinished_one_gives_that_an_ending():
    assert Document("a\r\nb").restore("a\nb\nc") == "a\r\nb\r\nc"


def test_a_removed_line_leaves_mixed_endings_alone():
    assert Document("a\r\nb\nc\rd\n").restore("a\nc\nd\n") == "a\r\nc\rd\n"


def test_the_first_ending_wins_a_tie():
    assert Document("a\r\nb\n").dominant_ending == "\r\n"


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_a_named_encoding_is_written_back_in_the_same_one(encoding):
    data = "Gr\u00fc\u00dfe\r\n".encode(encoding)
    document = Document.from_bytes(data, encoding=encoding)
    assert document.text == "Grüße\r\n"
    assert document.encode("schöne Grüße\r\n") == "schöne Grüße\r\n".encode(encoding)


def test_detection_finds_an_encoding_that_gives_the_bytes_back():
    data = "Der Bär läuft über die Brücke und grüßt höflich, während es dämmert.\r\n".encode("cp1252") * 5
    document = Document.from_bytes(data, encoding="detect")
    assert "über die Brücke" in document.text
    assert document.encode(document.restore(document.shown)) == data


def test_detection_prefers_utf8_and_reads_byte_order_marks():
    assert Document.from_bytes("é\n".encode(), encoding="detect").encoding == "utf-8"
    assert Document.from_bytes("é\n".encode("utf-16"), encoding="detect").text == "é\n"


@pytest.mark.parametrize(
    ("data", "encoding", "message"),
    [
        (b"\x7fELF\0\0", None, "binary"),
        (b"caf\xe9 \0", None, "binary"),
        (b"caf\xe9\n", None, "not UTF-8 (byte 0xe9 at offset 3)"),
        ("a\0b".encode("utf-16"), None, "binary"),
        (codecs.BOM_UTF16_LE + b"abc", None, "utf-16-le"),
        ("a".encode("utf-32"), None, "UTF-32"),
        (b"\x81\n", "cp1252", "does not decode as cp1252"),
        (b"a\n", "klingon", "unknown encoding 'klingon'"),
        (b"a\n", "hex", "unknown encoding 'hex'"),
        (b"a\n", "utf-16", "byte order mark"),
    ],
)
def test_what_is_no_text_is_refused_in_one_line(data, encoding, message):
    with pytest.raises(FileError) as caught:
        Document.from_bytes(data, encoding=encoding)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_character_the_encoding_lacks_is_refused():
    document = Document.from_bytes(b"caf\xe9\n", encoding="latin-1")
    with pytest.raises(FileError, match=r"U\+2192.*convert"):
        document.encode("café →\n")


def test_reading_says_what_is_wrong_with_a_path(tmp_path):
    for path, message in [(tmp_path / "none", "does not exist"), (tmp_path, "is a directory")]:
        with pytest.raises(FileError, match=message):
            read_document(path)


def test_a_named_utf8_file_keeps_its_byte_order_mark(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(codecs.BOM_UTF8 + b"a\r\n")
    document = read_document(path, encoding="utf-8")
    assert (document.text, document.encode(document.restore("b\n"))) == ("a\r\n", codecs.BOM_UTF8 + b"b\r\n")


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]
)
def test_a_byte_order_mark_is_none_of_the_text_whatever_encoding_is_named(encoding):
    data = "\ufeffa\n".encode(encoding.removesuffix("-sig"))
    document = Document.from_bytes(data, encoding=encoding)
    assert (document.text, document.encode()) == ("a\n", data)
    without = Document.from_bytes("a\n".encode(encoding.removesuffix("-sig")), encoding=encoding)
    assert (without.text, without.bom) == ("a\n", b"")
