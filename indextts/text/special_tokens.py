"""Special tokens and languages of the byte-level tokenizer of IndexTTS-2.5, in the order of their ids.

The ids start at the number of pieces in the rank file: <|endoftext|>, <|startoftranscript|>, the tags of 99
languages, and so on to <|30.00|>. The model has a row for each of 106 languages and one to spare; the last 7
languages have no tag.

The last 1,549 tokens are times, sounds and spare names, which the model hardly uses. The official program
reads such a token wherever a text spells it out, so a text can say `<|0.02|>` for a syllable or a frequent
part of a word of a new language:

    " ሰላም"  ->  "<|0.44|><|2.90|>"    a blank may belong to a piece

No table changes its shape, and no file of the official program changes: only the text is written with tokens.
"""

from collections.abc import Callable, Container, Iterator, Sequence

from indextts.errors import UserError

_LANGUAGES = """
en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la
mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg
sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su
yue minnan wuyu dialect zh/en en/zh common
"""
# Row of the language embedding by code; the first 99 have a special token.
LANGUAGES = tuple(_LANGUAGES.split())
NUM_TAGGED = 99
COMMON_ROW = LANGUAGES.index("common")  # of texts in several languages, or in one outside the table

_EVENTS = ("ASR", "AED", "SER", "Speech", "/Speech", "BGM", "/BGM", "Laughter", "/Laughter")
_MORE_EVENTS = ("Applause", "/Applause", "HAPPY", "SAD", "ANGRY", "NEUTRAL")
_TASKS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
_SOUNDS = (*("B", "O", "Q", "A", "CO", "CL", "H"), *(f"SP{number:02}" for number in range(1, 14)))
_TIMES = [f"{hundredths // 100}.{hundredths % 100:02}" for hundredths in range(0, 3001, 2)]
SPECIAL_TOKENS = tuple(
    f"<|{name}|>"
    for name in (
        *("endoftext", "startoftranscript"),
        *LANGUAGES[:NUM_TAGGED],
        *_EVENTS,
        *_MORE_EVENTS,
        *_TASKS,
        *(f"SPECIAL_TOKEN_{number}" for number in range(1, 31)),
        *(f"TTS/{name}" for name in _SOUNDS),
        *_TIMES,
    )
)
NUM_OTHER = SPECIAL_TOKENS.index("<|SPECIAL_TOKEN_3|>")  # special tokens before; 1 and 2 mark pronunciations
RESERVED = SPECIAL_TOKENS[NUM_OTHER:]


def language_tag(code: str) -> str:
    """Return what the model reads before a text in the language; the blank joins the first word."""
    return f"<|{code.lower()}|> "


def language_row(code: str, choice: str = "own") -> int:
    """Return the row of a language in the language embedding.

    Args:
        choice: "common" for the row of texts in languages outside the table, "own" for that of the language.

    Raises:
        UserError: the language is not in the table.
    """
    if choice == "common":
        return COMMON_ROW
    if code.lower() not in LANGUAGES:
        raise UserError(
            f"--language {code}: IndexTTS-2.5 has no row for this language; pass --language-row common for "
            f"the row of all such languages; it has rows for {', '.join(LANGUAGES[:NUM_TAGGED])}"
        )
    return LANGUAGES.index(code.lower())


def token_writer(pieces: Sequence[str]) -> Callable[[str], str]:
    """Return the function that writes a text with the tokens of `pieces`, the longest piece first."""
    token_of = dict(zip(pieces, RESERVED, strict=False))
    longest = max(map(len, pieces), default=0)
    return lambda text: "".join(token_of.get(part, part) for part in longest_parts(text, token_of, longest))


def longest_parts(text: str, pieces: Container[str], longest: int) -> Iterator[str]:
    """Yield the parts of a text: at each place the longest of `pieces`, else a character."""
    start = 0
    while start < len(text):
        ends = range(min(len(text), start + longest), start, -1)
        end = next((end for end in ends if text[start:end] in pieces), start + 1)
        yield text[start:end]
        start = end
