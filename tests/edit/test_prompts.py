import pytest

from lookupdec.edit.prompts import EditPrompt, Templates, plain_prompt
from lookupdec.errors import FileError


def test_the_built_in_templates_come_with_the_package():
    templates = Templates.load()
    assert templates.system
    for task in ("whole", "part", "rewrite", "summarize"):
        messages = templates.messages(task, EditPrompt("do it", text="a $text ${part}\n", part="b"))
        assert [message["role"] for message in messages] == ["system", "user"]
        assert "```\na $text ${part}\n```\n" in messages[1]["content"]
        assert "do it" in messages[1]["content"]


def test_templates_of_a_folder_replace_the_built_in_ones(tmp_path):
    (tmp_path / "system.txt").write_text("")
    (tmp_path / "whole.txt").write_text("$instruction costs $$1: $text\n")
    templates = Templates.load(tmp_path)
    assert templates.messages("whole", EditPrompt("x", text="y\n")) == [
        {"role": "user", "content": "x costs $1: y\n"}
    ]
    assert templates.tasks["part"] == Templates.load().tasks["part"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"$text", "lacks .instruction"),
        (b"$text $instruction $colour", "asks for .colour"),
        (b"$text $instruction $5", "stray"),
        (b"\xff", "cannot be read as UTF-8"),
    ],
)
def test_a_template_that_cannot_work_is_refused(tmp_path, content, message):
    (tmp_path / "whole.txt").write_bytes(content)
    with pytest.raises(FileError, match=message):
        Templates.load(tmp_path)


def test_other_texts_stand_before_the_text():
    prompt = EditPrompt("x", text="the text", context=["first", "second\n"], language="go")
    content = Templates.load().messages("whole", prompt)[-1]["content"]
    assert content.startswith("```\nfirst\n```\n\n```\nsecond\n```\n\n```go\nthe text\n```\n")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([("system", "s"), ("user", "u")], ("s\n\nu\n\nThe result:\n\n```\n", "\n```")),
        ([("user", "````\nx\n````")], ("````\nx\n````\n\nThe result:\n\n````\n", "\n````")),
        ([("user", "u"), ("assistant", "x = ")], ("u\n\nThe result:\n\n```\nx = ", "\n```")),
        ([("user", "u"), ("assistant", "````py\nx")], ("u\n\nThe result:\n\n````py\nx", "\n````")),
    ],
)
def test_messages_for_a_model_without_chat_template_open_a_code_block(messages, expected):
    asked = [{"role": role, "content": content} for role, content in messages]
    assert plain_prompt(asked) == expected


def test_what_templates_say_themselves_can_be_told_from_texts():
    templates = Templates.load()
    prompt = EditPrompt("be brief", text="a\n", part="a\n", language="yaml")
    said = templates.sentences(prompt)
    assert "Copy the text above, line by line, with this change: be brief" in said
    assert "Write a new yaml file: be brief" in said
    assert templates.system in said
    for task in ("whole", "part", "create", "rewrite", "summarize"):
        messages = templates.messages(task, prompt)
        assert any(line in said for line in messages[-1]["content"].split("\n"))
    assert not any(line in said for line in ("a", "```", ""))
