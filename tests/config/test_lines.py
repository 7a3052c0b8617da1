"""Each key of a TOML text is found on its line."""

from __future__ import annotations

from gateway.config.lines import key_lines

SOURCE = '''# a comment with [brackets] and "quotes"
name = "a # b"
list = [
  1,  # one ]
  2,
]
text = """
[not.a.table]
key = 1
"""
literal = \'\'\'
it's "fine"\'\'\'

[acceptors.all]
endpoint = "tcp:1"   # after

[address-settings."a.#"]
max-size-bytes = 1
"quoted key" = 2
dotted.key = 3

[[authentication]]
type = "file"
[[authentication]]
type = "file"
[authentication.more]
x = 1
[addresses.o]
queues = [{ name = "a" },
          { name = "b" }]
last = "\\"]"
end = ""
'''


def test_lines_of_keys_and_tables() -> None:
    lines = key_lines(SOURCE)
    assert lines["name",] == 2
    assert lines["list",] == 3
    assert lines["text",] == 7
    assert ("not", "a", "table") not in lines
    assert lines["literal",] == 11
    assert lines["acceptors", "all"] == 14
    assert lines["acceptors", "all", "endpoint"] == 15
    assert lines["address-settings", "a.#"] == 17
    assert lines["address-settings", "a.#", "max-size-bytes"] == 18
    assert lines["address-settings", "a.#", "quoted key"] == 19
    assert lines["address-settings", "a.#", "dotted", "key"] == 20
    assert lines["authentication", 0] == 22
    assert lines["authentication", 0, "type"] == 23
    assert lines["authentication", 1, "type"] == 25
    assert lines["authentication", 1, "more", "x"] == 27
    assert lines["addresses", "o", "queues"] == 29
    assert lines["addresses", "o", "last"] == 31
    assert lines["addresses", "o", "end"] == 32


def test_an_empty_text_and_a_text_without_an_end_of_line() -> None:
    assert key_lines("") == {}
    assert key_lines("a = 1") == {("a",): 1}
    assert key_lines('a = """x"""""\nb = 2') == {("a",): 1, ("b",): 2}
