"""Special tokens and languages of the byte-level tokenizer of IndexTTS-2.5, in the order of their ids.

The ids start at the number of pieces in the rank file: <|endoftext|>, <|startoftranscript|>, the tags of 99
languages, and so on to <|30.00|>. The model has a row for each of 106 languages and one to spare; the last 7
languages have no tag.
"""

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
