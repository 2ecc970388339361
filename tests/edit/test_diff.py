import json
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookupdec.edit.diff import TextEdit, apply_edits, encoded_diff, text_edits, unified_diff
from lookupdec.edit.positions import Position
from lookupdec.edit.textio import Document
from lookupdec.errors import InputError

TEXTS = st.text(st.sampled_from("ab\n\n\r é\U0001f600\u2028\f"), max_size=30)
ENCODINGS = st.sampled_from(["utf-8", "utf-16", "utf-32"])


@given(TEXTS, TEXTS, ENCODINGS)
def test_edits_turn_the_old_text_into_the_new_one(old, new, encoding):
    edits = text_edits(old, new, position_encoding=encoding)
    assert apply_edits(old, edits, position_encoding=encoding) == new
    assert (edits == ()) == (old == new)
    for first, second in zip(edits, edits[1:], strict=False):
        assert first.end <= second.start


def test_an_edit_holds_the_changed_characters_alone():
    edits = text_edits("one\r\ntwo three\r\nfour\r\n", "one\r\ntwo tree\r\nfour\r\n")
    assert edits == (TextEdit(Position(1, 5), Position(1, 6), ""),)


def test_distant_changes_are_separate_edits_against_the_original():
    old = "a\nb\nc\nd\ne\n"
    edits = text_edits(old, "a\nnew\nnew\nb\nc\nd\nE\n")
    assert [edit.start.line for edit in edits] == [1, 4]
    assert apply_edits(old, edits[::-1]) == "a\nnew\nnew\nb\nc\nd\nE\n"


@pytest.mark.parametrize(("encoding", "character"), [("utf-8", 6), ("utf-16", 3), ("utf-32", 2)])
def test_characters_are_counted_in_the_chosen_encoding(encoding, character):
    (edit,) = text_edits("é\U0001f600x", "é\U0001f600y", position_encoding=encoding)
    assert (edit.start, edit.end) == (Position(0, character), Position(0, character + 1))


def test_crlf_is_never_split():
    assert text_edits("a\r\nb", "a\nb") == (TextEdit(Position(0, 1), Position(1, 0), "\n"),)
    assert text_edits("a\nb", "a\r\nb") == (TextEdit(Position(0, 1), Position(1, 0), "\r\n"),)


def test_an_edit_can_be_sent_as_the_protocol_writes_it():
    (edit,) = text_edits("a b", "a c")
    span = '"range": {"start": {"line": 0, "character": 2}, "end": {"line": 0, "character": 3}}'
    assert json.dumps(edit.as_lsp()) == f'{{{span}, "newText": "c"}}'


@pytest.mark.parametrize(
    "edit",
    [
        TextEdit(Position(3, 0), Position(3, 0), ""),
        TextEdit(Position(0, 1), Position(0, 2), ""),
        TextEdit(Position(0, 9), Position(0, 9), ""),
        TextEdit(Position(1, 0), Position(0, 0), ""),
    ],
)
def test_positions_outside_the_text_or_inside_a_character_are_refused(edit):
    with pytest.raises(InputError):
        apply_edits("\U0001f600\nb\n", [edit])


def test_overlapping_edits_are_refused():
    first = TextEdit(Position(0, 0), Position(0, 2), "x")
    second = TextEdit(Position(0, 1), Position(0, 3), "y")
    with pytest.raises(InputError, match="overlap"):
        apply_edits("abc", [first, second])


def test_an_unknown_position_encoding_is_refused():
    with pytest.raises(InputError, match="utf-7"):
        text_edits("a", "b", position_encoding="utf-7")  # type: ignore[arg-type]


def test_a_diff_marks_a_missing_final_newline():
    assert unified_diff("a\nb", "a\nc\n", "f.txt") == (
        "--- a/f.txt\n+++ b/f.txt\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n"
    )


def test_equal_texts_have_no_diff():
    assert unified_diff("a\n", "a\n") == ""


def test_close_changes_share_a_hunk_and_distant_ones_do_not():
    old = "".join(f"{number}\n" for number in range(30))
    new = old.replace("4\n", "four\n", 1).replace("9\n", "nine\n", 1).replace("25\n", "x\n")
    assert [line for line in unified_diff(old, new).split("\n") if line.startswith("@@")] == [
        "@@ -2,12 +2,12 @@",
        "@@ -23,7 +23,7 @@",
    ]


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs the patch program")
@given(
    old=st.text(st.sampled_from("ab\n"), min_size=1, max_size=40),
    new=st.text(st.sampled_from("ab\n"), max_size=40),
)
def test_patch_takes_every_diff(tmp_path_factory, old, new):
    folder = tmp_path_factory.mktemp("patch")
    (folder / "text").write_text(old)
    diff = unified_diff(old, new)
    subprocess.run(["patch", "-s", "-p1"], cwd=folder, input=diff.encode(), check=True)
    path = folder / "text"
    assert (path.read_text() if path.exists() else "") == new


NAMES = [
    "a.txt",
    "my file.txt",
    "tab\tname",
    "line\nname",
    'q"uote',
    "back\\slash",
    "\u00e9t\u00e9",
    "b\udce9yte",
    "\x7f",
]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("program", [["git", "apply", "-"], ["patch", "-s", "-p1"]])
@pytest.mark.parametrize("name", NAMES)
def test_names_are_written_as_git_and_patch_read_them(tmp_path, name, program):
    if shutil.which(program[0]) is None:
        pytest.skip(f"needs {program[0]}")
    (tmp_path / name).write_text("a\nb\n")
    diff = unified_diff("a\nb\n", "a\nB\n", name)
    subprocess.run(program, cwd=tmp_path, input=diff.encode(), check=True)
    assert (tmp_path / name).read_text() == "a\nB\n"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "shift_jis", "gb18030"])
@pytest.mark.parametrize("changed", ["one", "two"])
def test_a_diff_has_the_bytes_of_the_file(tmp_path, encoding, changed):
    text = "one \u00e9\r\ntwo\n".replace("\u00e9", "\u30c6" if encoding == "shift_jis" else "\u00e9")
    new = text.replace(changed, "2")
    (tmp_path / "a").write_bytes(text.encode(encoding))
    document = Document.from_bytes(text.encode(encoding), encoding=encoding)
    diff, applies = encoded_diff(document, new, "a")
    assert applies
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=diff, check=True)
    assert (tmp_path / "a").read_bytes() == new.encode(encoding)


def test_a_diff_that_no_program_applies_is_readable():
    for document, new in (
        (Document("a\n", "utf-16-le", b"\xff\xfe"), "b\n"),
        (Document("a\n", "latin-1"), "\u20ac\n"),
    ):
        diff, applies = encoded_diff(document, new, "n")
        assert (diff.decode(), applies) == (unified_diff("a\n", new, "n"), False)
    assert encoded_diff(document, "a\n") == (b"", True)
