"""Sentences and speech of many languages, for tests: Django's translations, spoken by espeak-ng.

Both come in packages: Django (BSD licence) and espeakng-loader
(espeak-ng: GPL). Placeholders of the translations become "twelve".
"""

import ctypes
import gettext
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import django
import espeakng_loader
import numpy as np
import soundfile
from numpy.typing import NDArray

from indextts.text.general_rules import reads_numbers
from indextts.text.languages import find_language

_PLACEHOLDER = re.compile(r"%\([^)]*\)[a-z]|%[a-z]|\{[^}]*\}")
_SENTENCE_END = re.compile(r"(?<=[.!?؟۔])\s+|\n+")
_TWELVE = {"ko": "열둘", "ar": "اثنا عشر", "th": "สิบสอง", "sw": "kumi na mbili"}
_UNSPOKEN = re.compile(r"[<>/=|_+#&*]")
_MAX_CHARS = 160
_MIN_LETTERS = 3
_MIN_SHARE = 0.85  # of the letters in the script; the check rejects others
_SYNCHRONOUS = 2  # espeak-ng returns the sound of each call
_UTF_8 = 1
_CHARACTERS = 1  # the unit of the position
_PHONE = 7  # a type of events
_PHONES_AS_EVENTS, _IN_IPA = 1, 2


def sentences(language: str, count: int) -> list[str]:
    """Return different sentences in a fixed order.

    Args:
        language: "ko", "ar", "th" or "sw", which have more than 400; others may have fewer.
    """
    found = dict.fromkeys(_sentences(language))
    assert len(found) >= count, f"{language}: only {len(found)} sentences"
    return list(found)[:count]


def _sentences(language: str) -> Iterator[str]:
    spoken = find_language(language)
    folder = Path(django.__file__).parent
    for path in sorted(folder.rglob(f"locale/{language}/LC_MESSAGES/*.mo")):
        with path.open("rb") as file:
            catalogue = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
        for key, text in sorted(catalogue.items(), key=str):
            if key and isinstance(text, str):
                for part in _SENTENCE_END.split(_PLACEHOLDER.sub(_TWELVE[language], text)):
                    is_own = (
                        spoken.share(part) >= _MIN_SHARE and spoken.count_letters(part)[0] >= _MIN_LETTERS
                    )
                    has_digits = any(map(str.isdigit, part)) and not reads_numbers(spoken)
                    if is_own and len(part) <= _MAX_CHARS and not has_digits and not _UNSPOKEN.search(part):
                        yield part.strip()


def speak(text: str, language: str, path: Path, pitch: int = 50, words_per_minute: int = 175) -> Path:
    """Write a sentence as spoken by espeak-ng; arguments as for `spoken`."""
    samples, rate_hz = spoken(text, language, pitch, words_per_minute)
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate_hz)
    return path


def spoken(
    text: str, language: str, pitch: int = 50, words_per_minute: int = 175
) -> tuple[NDArray[np.float32], int]:
    """Return a sentence as spoken by espeak-ng, and its sample rate.

    Args:
        language: a voice of espeak-ng, "am", or with a variant, "am+f2".
        pitch: 0 to 99; another pitch is another voice.
    """
    return spoken_phones(text, language, pitch, words_per_minute)[:2]


def spoken_phones(
    text: str, language: str, pitch: int, words_per_minute: int
) -> tuple[NDArray[np.float32], int, list[tuple[int, str]]]:
    """Return what `spoken` returns, and the phones: the first sample of each, and its IPA symbols."""
    library, rate_hz = _espeak()
    parts: list[NDArray[np.int16]] = []
    phones: list[tuple[int, str]] = []

    def collect(
        samples: "ctypes._Pointer[ctypes.c_short]", count: int, events: "ctypes._Pointer[_Event]"
    ) -> int:
        if samples and count > 0:
            parts.append(np.ctypeslib.as_array(samples, (count,)).copy())
        for number in range(1000 if events else 0):  # a list that an event of type 0 ends
            if not events[number].type:
                break
            if events[number].type == _PHONE:
                phones.append((events[number].sample, events[number].phone.decode("utf-8", "ignore")))
        return 0

    callback = _CALLBACK(collect)
    library.espeak_SetSynthCallback(callback)
    assert library.espeak_SetVoiceByName(language.encode()) == 0, f"espeak-ng has no voice for {language}"
    library.espeak_SetParameter(1, words_per_minute, 0)
    library.espeak_SetParameter(3, pitch, 0)
    content = text.encode()
    library.espeak_Synth(content, len(content) + 1, 0, _CHARACTERS, 0, _UTF_8, None, None)
    samples: NDArray[np.float32] = np.concatenate(parts).astype(np.float32)
    return samples / np.float32(1 << 15), rate_hz, phones


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("phone", ctypes.c_char * 8),
    )


_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


@lru_cache(maxsize=1)
def _espeak() -> tuple[ctypes.CDLL, int]:
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    data = espeakng_loader.get_data_path().encode()
    rate_hz = library.espeak_Initialize(_SYNCHRONOUS, 0, data, _PHONES_AS_EVENTS | _IN_IPA)
    return library, int(rate_hz)
