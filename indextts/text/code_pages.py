"""Windows code pages: texts that are not Unicode, as spreadsheets save them on many machines."""

from indextts.text.languages import find_language

# The most usual first; a tie is decided so.
CODE_PAGES = (
    "cp1252",
    "cp1250",
    "cp1251",
    "cp1256",
    "cp1254",
    "cp1253",
    "cp1255",
    "cp1257",
    "cp1258",
    "cp874",
)


def code_page(content: bytes, language: str) -> str | None:
    """Return the code page in which most bytes are letters of a language; None for UTF-8, or if most are not.

    A few invalid bytes among characters of UTF-8 belong to single lines of a file in UTF-8.
    """
    num_valid = sum(char > "\x7f" for char in content.decode("utf-8", errors="ignore"))
    num_invalid = content.decode("utf-8", errors="replace").count("\ufffd")
    if not num_invalid or num_valid >= num_invalid:
        return None
    letters = frozenset("".join(find_language(language).letters).casefold())
    texts = {page: content.decode(page, errors="replace").casefold() for page in CODE_PAGES}
    found = {
        page: [char for char in text if char > "\x7f" and char.isalpha()] for page, text in texts.items()
    }
    num_known = {page: sum(char in letters for char in chars) for page, chars in found.items()}
    best = max(CODE_PAGES, key=num_known.__getitem__)
    return best if 2 * num_known[best] >= len(found[best]) else None
