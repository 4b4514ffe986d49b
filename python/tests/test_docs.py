import pathlib
import re

import terrace

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "embedding.md"


def test_the_example_of_the_page_runs(path: pathlib.Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = example.replace("/srv/app.db", str(path)).replace('memory="1G"', 'memory="16M", log="4M"')
    assert str(path) in program
    exec(compile(program, str(PAGE), "exec"), {})
    with terrace.open(path, memory="16M", log="4M") as db:
        assert dict(db.tree("users").items()) == {b"bob": b"1820", b"eve": b"1830"}
