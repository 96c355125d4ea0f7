"""Tables as people have them: each is read right, or refused in a line that shows the cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp.config.inputs import STREAMS
from attn_exp.diagnosis.classroom.boxes import read_cells
from attn_exp.errors import UserError
from attn_exp.problem.drawing import seed_source
from attn_exp.problem.sources import read_input
from tests.compose import config
from tests.refusal import refusal

HALVES = [[0.5, 2.0], [-1.5, 1e-3]]
NAMES = ("a", "b")

READ = {
    "plain": ("x.csv", b"0.5,2.0\n-1.5,1e-3\n", False),
    "a mark of Excel, its line ends, an empty line": (
        "x.csv",
        b"\xef\xbb\xbf0.5,2.0\r\n-1.5,1e-3\r\n,\r\n",
        False,
    ),
    "line ends of old Macs": ("x.csv", b"0.5,2.0\r-1.5,1e-3\r", False),
    "semicolons": ("x.csv", b"0.5;2.0\n-1.5;1e-3\n", False),
    "semicolons and decimal commas": ("x.csv", b"0,5;2,0\n-1,5;1e-3\n", False),
    "names, semicolons and decimal commas": ("x.csv", b"name;one;two\na;0,5;2,0\nb;-1,5;1e-3\n", True),
    "decimal commas in quotes": ("x.csv", b'"0,5","2,0"\n"-1,5","1e-3"\n', False),
    "quotes around all": ("x.csv", b'"name","one","two"\n"a","0.5","2"\n"b","-1.5","0.001"\n', True),
    "tabs in a csv": ("x.csv", b"0.5\t2.0\n-1.5\t1e-3\n", False),
    "commas at the ends": ("x.csv", b"0.5,2.0,\n-1.5,1e-3,\n", False),
    "blanks around": ("x.csv", b" 0.5 , 2.0 \n -1.5 , 1e-3 \n", False),
    "a typographic minus": ("x.csv", "0.5,2.0\n\u22121.5,1e-3\n".encode(), False),
    "a dash for a minus": ("x.csv", "0.5;2,0\n\u20131,5;1e-3\n".replace("0.5", "0,5").encode(), False),
    "an index of pandas": ("x.csv", b",one,two\na,0.5,2.0\nb,-1.5,0.001\n", True),
    "names with a point and a mark": ("x.csv", b"t,x.1,x#2\na,0.5,2.0\nb,-1.5,0.001\n", True),
    "text of Excel": ("x.txt", "\ufeffname\tone\ttwo\r\na\t0.5\t2\r\nb\t-1.5\t0.001\r\n".encode("utf-16-le"), True),
    "blanks and decimal commas": ("x.txt", b"0,5 2,0\n-1,5 1e-3\n", False),
    "word2vec": ("x.txt", b"2 2\na 0.5 2.0\nb -1.5 0.001\n", True),
    "GloVe": ("x.txt", b"a 0.5 2.0\nb -1.5 0.001\n", True),
    "savetxt": ("x.txt", b"# one two\n5e-1 2e0\n-1.5e0 1.0e-03\n", False),
}

REFUSED = {
    "percent above a number": ("x.csv", b"50%,3\n1,2\n", "row 0 holds '50%', which is not a number"),
    "a prefix above a number": ("x.csv", b"0x10,3\n1,2\n", "row 0 holds '0x10', which is not a number"),
    "thousands below a number": ("x.csv", b"1,3\n1 000,2\n", "row 1 holds '1 000', which is not a number"),
    "a word among numbers": ("x.csv", b"1,3\nabc,2\n2,5\n", "row 1 holds 'abc', which is not a number"),
    "fractions": ("x.csv", b"1/2,1/3\n1,2\n", "line 1, column 1 holds '1/2', which is neither a number nor the name"),
    "percent": ("x.csv", b"50%,20%\n1,2\n", "line 1, column 1 holds '50%'"),
    "hexadecimal": ("x.csv", b"0x10,0x11\n1,2\n", "line 1, column 1 holds '0x10'"),
    "thousands by blanks": ("x.csv", b"1 000,2 000\n1,2\n", "line 1, column 1 holds '1 000'"),
    "an unfinished exponent": ("x.csv", b"1e,2e\n1,2\n", "line 1, column 1 holds '1e'"),
    "one of each": ("x.csv", b"one,1/3\n1,2\n", "line 1, column 2 holds '1/3'"),
    "what is not there": ("x.csv", b"NA,NA\n1,2\n", "line 1, column 1 holds 'NA'"),
    "underscores": ("x.csv", b"1_000,2_000\n1,2\n", "line 1, column 1 holds '1_000'"),
    "digits of another writing": ("x.csv", "\uff11,\uff12\n1,2\n".encode(), "line 1, column 1 holds '\uff11'"),
    "money": ("x.csv", "€1,€2\n1,2\n".encode(), "line 1, column 1 holds '€1'"),
    "a number and a fraction": ("x.csv", b"1,1/3\n1,2\n", "row 0 holds '1/3', which is not a number"),
    "a fraction below names": ("x.csv", b"one,two\n1,1/3\n", "row 0 holds '1/3', which is not a number"),
    "NaN": ("x.csv", b"nan,1\n1,2\n", "row 0, column 0 holds nan; expected finite numbers"),
    "one word of two numbers, or numbers": ("x.csv", b"1,2\n1,2,3\n", "is ragged: rows of 2, 3 numbers"),
    "the same apart by blanks": ("x.txt", b"1 2\n1 2 3\n", "is ragged: rows of 2, 3 numbers"),
    "an empty cell": ("x.csv", b"1,2\n3,\n", "row 1 holds '', which is not a number"),
    "a point and a comma": ("x.csv", b"1,5;2.5\n1;2\n", "it holds '1,5' and '2.5'; write a decimal point in each"),
    "thousands in quotes": (
        "x.csv",
        b'"1,234","5,678"\n"1,000","2,000"\n',
        "it holds '1,234', whose comma may separate thousands",
    ),
    "a first row whose name is missing": (
        "x.csv",
        b",0.5,0.7\na,1,2\n",
        "line 1 has numbers, but its first cell is empty",
    ),
    "half a text in UTF-16": ("x.txt", b"\xff\xfea", "codec can't decode"),
}


def embedded(path: Path) -> Any:
    given = config("embeddings=file", f"embeddings.file={path}")
    return read_input(given.embeddings, seed_source(STREAMS, 0))


@pytest.mark.parametrize("name", READ)
def test_what_people_have_is_read(name: str, tmp_path: Path) -> None:
    file, content, named = READ[name]
    (tmp_path / file).write_bytes(content)
    found = embedded(tmp_path / file)
    np.testing.assert_array_equal(found.stages["x"], HALVES)
    assert found.tokens == (NAMES if named else ("x0", "x1"))
    if name == "word2vec":  # whose first line is no answer's
        return
    cells = read_cells(tmp_path / file, "answer.q")
    np.testing.assert_array_equal(cells.values, HALVES)
    assert cells.rows == (NAMES if named else ())


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_number_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    file, content, told = REFUSED[name]
    (tmp_path / file).write_bytes(content)
    said = refusal(embedded, tmp_path / file)
    assert told in said and "x." in said


@pytest.mark.parametrize("cell", ["1/2", "50%", "0x10", "1 000", "1e", ".", "--", "1_0", "€1"])
def test_an_answer_loses_no_first_line(cell: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"{cell},{cell}\n0.5,0.5\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 1, column 1 holds"):
        read_cells(tmp_path / "x.csv", "answer.weights")


@pytest.mark.parametrize("content", [",0.7\n0.5,0.5\n", "?,0.7\n0.5,0.5\n", "-,-\n0.5,0.5\n", "_,0.7\n0.5,0.5\n"])
def test_cells_that_an_answer_leaves_out_are_no_names(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(content, encoding="utf-8")
    cells = read_cells(tmp_path / "x.csv", "answer.weights")
    assert cells.values.shape == (2, 2) and cells.columns == ()
