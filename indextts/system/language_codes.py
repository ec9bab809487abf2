"""ISO 639 codes of languages, however they are written."""

from functools import lru_cache

import langcodes


@lru_cache(maxsize=1024)
def standard_code(code: str) -> str | None:
    """Return the shortest code of a language: "am" for "amh", "am_et" or "amh_asr"; None if it is unknown.

    Individual languages of a macrolanguage have its code: "zh" for "cmn". A script other than the usual one
    stays: "sr-Latn".
    """
    try:
        written = langcodes.Language.get(langcodes.standardize_tag(code, macro=True))
    except langcodes.tag_parser.LanguageTagError:
        return None
    if not written.language or not langcodes.Language.make(written.language).is_valid():
        return None
    usual = langcodes.Language.make(written.language).maximize().script
    has_other_script = written.script is not None and written.script != usual
    return f"{written.language}-{written.script}" if has_other_script else written.language
