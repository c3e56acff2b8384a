"""Text from outside, made fit for one line of a terminal."""


def printable(text: object) -> str:
    """Return a text without line breaks and control characters: each is written as in a Python string."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in str(text))
