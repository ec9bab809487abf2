"""Comparison of the byte-level tokenizer with a folder of reference texts, for `conformance`.

config.yaml          pattern, languages, ranks and sizes of each rank file
special_tokens.json  names in the order of their ids
cases.json           texts with the ids of each rank file, the decoded text, and tokens
frontend.json        texts with their official preparation and ids
NAME/FILE.tiktoken   a rank file; the published one lies in ../../data/indextts25_tokenizer/
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from indextts.text.byte_level import PATTERN, ByteLevelTokenizer
from indextts.text.official_front_end import prepare
from indextts.text.special_tokens import COMMON_ROW, LANGUAGES, SPECIAL_TOKENS, language_tag
from tests.reference_vectors import read

PUBLISHED = "data/indextts25_tokenizer"


def tokenizer_results(folder: Path) -> Iterator[tuple[str, int | None]]:
    """Name of each comparison and the number of values that differ; None without the file that it needs."""
    config = read(folder / "config.yaml", lambda path: yaml.safe_load(path.read_bytes()))
    cases, frontend, names = (
        read(folder / f"{name}.json", lambda path: json.loads(path.read_text(encoding="utf-8")))
        for name in ("cases", "frontend", "special_tokens")
    )
    yield "pattern", int(config["pattern"] != PATTERN)
    yield "languages", int(tuple(config["languages"]) != LANGUAGES)
    yield "special_tokens", int(tuple(names) != SPECIAL_TOKENS)
    tokenizers = {}
    for name in (name for name in config if isinstance(config[name], dict) and "ranks" in config[name]):
        path = (folder.parents[1] / PUBLISHED if name == "published" else folder / name) / config["file"]
        if name == "published" and not path.is_file():
            yield from ((f"{name}: {what}", None) for what in ("ranks", "cases", "decoded"))
            continue
        content = read(path, Path.read_bytes)
        tokenizer = tokenizers[name] = ByteLevelTokenizer(content, path)
        yield f"{name}: ranks", int(not fits(tokenizer, content, config[name]))
        encoding = tokenizer.encoding
        ids = [encoding.encode(case["text"], allowed_special="all") for case in cases]
        yield f"{name}: cases", sum(found != case[name] for found, case in zip(ids, cases, strict=True))
        first_time = encoding.encode_single_token("<|0.00|>")
        decoded = [encoding.decode([token for token in row if token < first_time]) for row in ids]
        yield f"{name}: decoded", sum(a != case["decoded"] for a, case in zip(decoded, cases, strict=True))
    for number, case in enumerate(frontend):
        if case["tokenizer"] in tokenizers:
            yield f"frontend {number}", front_end_differences(tokenizers[case["tokenizer"]], case)
        else:
            yield f"frontend {number}", None


def fits(tokenizer: ByteLevelTokenizer, content: bytes, expected: dict[str, Any]) -> bool:
    digest = expected.get("sha256")
    return (
        len(tokenizer.ranked) == expected["ranks"]
        and tokenizer.size == expected["vocabulary"]
        and tokenizer.pieces.index("<|am|>") == expected["am"]
        and digest in (None, hashlib.sha256(content).hexdigest())
    )


def front_end_differences(tokenizer: ByteLevelTokenizer, case: dict[str, Any]) -> int:
    """The number of prepared text, ids and language row that differ; no ids of a text that is cut."""
    language, encoding = case["lang"].lower(), tokenizer.encoding
    prepared, tag = prepare(case["text"], language), language_tag(language)
    found = {
        "prepared": prepared,
        "lang_row": LANGUAGES.index(language) if language in LANGUAGES else COMMON_ROW,
    }
    if len(case["segments"]) == 1:
        found["ids"] = [[*encoding.encode(tag + prepared, allowed_special="all"), 1]]
    return sum(case[name] != value for name, value in found.items())
