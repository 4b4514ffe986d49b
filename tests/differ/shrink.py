"""Shrinks a list of statements that shows a difference, by leaving statements and parts of them out."""

import time

from compare import Died, TimedOut


def shrink(pair, statements, signature, seconds=600):
    """`statements` ends with the one that differs. Returns a shorter list with a difference of the same signature."""
    until = time.monotonic() + seconds

    def differs(candidate):
        try:
            found = pair.first_difference(candidate)
        except (Died, TimedOut):
            return None
        if found and found[1].signature == signature:
            return found[0]
        return None

    statements = list(statements)
    changed = True
    while changed and time.monotonic() < until:
        changed = False
        size = max(1, len(statements) // 2)
        while size and time.monotonic() < until:
            at = 0
            while at < len(statements) and time.monotonic() < until:
                candidate = statements[:at] + statements[at + size:]
                last = differs(candidate) if candidate else None
                if last is not None:
                    statements = candidate[:last + 1]
                    changed = True
                else:
                    at += size
            size //= 2
        for statement in statements:
            for parts in statement.lists():
                size = max(1, len(parts.items) // 2)
                while size and time.monotonic() < until:
                    at = 0
                    while at < len(parts.items) and len(parts.items) > 1 and time.monotonic() < until:
                        kept = list(parts.items)
                        if len(kept) <= size:
                            break
                        parts.items[:] = kept[:at] + kept[at + size:]
                        if differs(statements) is not None:
                            changed = True
                        else:
                            parts.items[:] = kept
                            at += size
                    size //= 2
    return statements
