"""HTML as a browser parses it, for tests that hostile texts are escaped."""

from html.parser import HTMLParser


class Parsed(HTMLParser):
    """The tags of a page with their attributes, and its text; a comment is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    @property
    def names(self) -> set[str]:
        """The names of all tags and attributes."""
        return {name for tag, attributes in self.tags for name in (tag, *attributes)}

    def values(self, tag: str, attribute: str) -> list[str | None]:
        """Return the values of an attribute that tags of this name have."""
        return [found[attribute] for name, found in self.tags if name == tag and attribute in found]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)
