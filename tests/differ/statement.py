"""A statement as text with lists in it, so that a difference can be shrunk by dropping what a list holds."""

from dataclasses import dataclass, field


@dataclass
class Parts:
    """Things of which any may be left out as long as one stays: rows of an INSERT, columns and keys, conditions."""

    items: list
    separator: str = ", "

    def text(self):
        return self.separator.join(item if isinstance(item, str) else item.text() for item in self.items)


@dataclass
class Statement:
    """`kind` names what it is. What two engines must agree on:
    rows      "bag" (any order), "list", or a number N: the first N columns as a list, the rest as a bag
    counted   the number of affected rows and the server's message about them
    warned    the warnings"""

    kind: str
    pieces: list
    rows: object = "bag"
    counted: bool = False
    warned: bool = False
    created: dict = field(default_factory=dict)

    def text(self):
        return "".join(piece if isinstance(piece, str) else piece.text() for piece in self.pieces)

    def lists(self):
        found, pending = [], list(self.pieces)
        while pending:
            piece = pending.pop()
            if isinstance(piece, Parts):
                found.append(piece)
                pending.extend(piece.items)
        return found


def of(kind, *pieces, **more):
    return Statement(kind, list(pieces), **more)
