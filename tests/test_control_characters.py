"""What terminals would obey is written out, and what people write stays."""

from __future__ import annotations

import pickle
import unicodedata

import pytest

from offline_core.control_characters import visible, visible_line
from offline_core.errors import DataError
from offline_core.runtime.reporting.card import Card, Ran, Section

CLEAR, TURNED = "\x1b[2J\x1b]0;title\x07", "\u202egpj.exe"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202eb\u2069c", "a\\u202eb\\u2069c"),
        ("bell\a, back\b, over\r", "bell\\x07, back\\x08, over\\r"),
        ("\x9b31m, \x85 and \u2028", "\\x9b31m, \\x85 and \\u2028"),
        ("tag \U000e0041", "tag \\U000e0041"),
        (b"caf\xe9.csv".decode(errors="surrogateescape"), "caf\\udce9.csv"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("Größe, \N{GRINNING FACE}, שלום, 日本, \\x1b", "Größe, \N{GRINNING FACE}, שלום, 日本, \\x1b"),
        ("\N{FAMILY}\u200d\N{FAMILY}", "\N{FAMILY}\u200d\N{FAMILY}"),
    ],
)
def test_what_acts_on_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown == visible(visible(text))


def test_all_that_unicode_calls_control_or_direction_is_written_out() -> None:
    characters = map(chr, range(0x110000))
    acting = [each for each in characters if unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp")]
    acting += [
        each for each in map(chr, range(0x110000)) if unicodedata.bidirectional(each) in ("LRE", "RLE", "LRO", "RLO", "PDF")
    ]
    acting += [each for each in map(chr, range(0x110000)) if unicodedata.bidirectional(each) in ("LRI", "RLI", "FSI", "PDI")]
    assert not [each for each in acting if visible_line(each) == each]
    assert visible_line("a\n[ok] verified\tb") == "a\\n[ok] verified\\tb"


def test_an_error_shows_them_and_keeps_what_it_is_about() -> None:
    error = DataError(f"Column {CLEAR} of {TURNED} is no number.\nName another.", uri=TURNED, column=CLEAR)
    assert str(error) == "Column \\x1b[2J\\x1b]0;title\\x07 of \\u202egpj.exe is no number.\nName another."
    again = pickle.loads(pickle.dumps(error))
    assert (again.uri, again.column, str(again)) == (TURNED, CLEAR, str(error))
    assert str(error.within(TURNED)).startswith("\\u202egpj.exe: Column \\x1b[2J")


def test_no_part_of_a_card_brings_them_to_a_terminal() -> None:
    name = f"a\n[ok] verified{CLEAR}{TURNED}"
    card = Card(
        name,
        {name: name},
        word=name,
        sentence=name,
        warnings=[name],
        sections=[Section(name, [name]), Section(name, columns=[name, name], rows=[[name, name]])],
        next=f"offline check {name}",
        details={name: name},
        places=[name],
        ran=Ran("prune", {"where": name}, command=name),
        ancestors=[(0, name)],
    )
    shown = card.terminal(verbose=True)
    assert shown.isascii() and shown.replace("\n", "").isprintable()
    assert not [line for line in shown.splitlines() if line.strip().startswith("[ok]")]
    assert TURNED in card.markdown() and TURNED in card.html()  # where they are harmless
