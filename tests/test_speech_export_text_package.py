"""Tests of indextts/speech/export/text_package.py: texts for the official program, from a folder alone."""

import ast
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from indextts.commands.normalizer_options import NormalizerOptions, Reading
from indextts.speech.export.text_package import write_text_package
from indextts.text.bases import load_tokenizer
from indextts.text.byte_level import ByteLevelTokenizer
from indextts.text.ethiopic import is_ethiopic
from indextts.text.extend import extend_file
from indextts.text.normalize import normalize
from indextts.text.official_marks import with_ethiopic_marks
from indextts.text.tokenizer import Tokenizer
from tests.byte_ranks import write_ranks
from tests.conftest import REPOSITORY
from tests.official_front_end import (
    CJK,
    IDEOGRAPH,
    MAX_PIECES,
    official_ids_of_2_5,
    official_input,
    official_pieces,
    official_segments,
)
from tests.test_text_normalize import CASES
from tests.tokenizers import extend

OPTIONS = NormalizerOptions(
    homophones="strict", readings=(Reading("ፐርሰንት", "ፐርሰንት", "word"), Reading("BBC", "ቢቢሲ", "word"))
)
TEXTS = [case[0] for name, cases in CASES.items() if name.endswith(" 1") for case in cases]
TEXTS += ["BBC በ2017 ዓ.ም። ፀሐይ ወጣች፤ 50% ብቻ፧", "«ሰላም» አለ፦ 3.5 ሚሊዮን ብር፡፡"]
TEXTS += [  # several classes in one text, long texts without spaces, and unusual signs
    "በ12/05/2017 ዓ.ም. ጠዋት 3፡30 ላይ ተገናኙ።",
    "ስብሰባው መስከረም 1 ቀን 2018 ዓ.ም ከቀኑ 8:00 ሰዓት ይጀምራል፡፡",
    "ዋጋው ETB 1,250.75 ወይም $23.50 (€20) ነው።",
    "በ፲፱፻፺፱ ዓ.ም እና በ፳፻፲፯ መካከል፣ ፫፻፷፭ ቀናት አሉ።",
    "ምዕ. ፫፥፲፮ ‹እግዚአብሔር› “ዓለሙን” ‘እንዲሁ’ ወዶአልና",
    "ስልክ: 0911-23-45-67 ወይም +251 911 234 567፣ ኢሜል abebe@mail.com",
    "የWHO እና የUNICEF ሪፖርት COVID-19ን ይጠቅሳል።",
    "ከ5-10 ኪ.ሜ.፣ 3–5 ሰዓት፣ 2.5kg፣ 37.5°C፣ 60km/h፣ 220V።",
    "50%፣ 12.5 በመቶ፣ ½ ሊትር፣ 3¾ ኪሎ፣ 1/3ኛ፣ 0.05%።",
    "የ iPhone 15 Pro Max ዋጋ 150,000 ብር ሆነ!!! እውነት ነው???",
    "1. አንደኛ\n2. ሁለተኛ\n3) ሦስተኛ\t• ነጥብ — ጭረት",
    "a² + b² = c²፣ x ≤ 5፣ π ≈ 3.14፣ 5×6=30፣ 10÷2።",
    "😀 ደስ ብሎኛል ❤️ @abebe #ኢትዮጵያ_ትቅደም &amp; <b>ደማቅ</b>",
    "-5 ዲግሪ፣ −10.5°፣ +3፣ ±2፣ ቁጥር 1234567890123 እና 007",
    "ሰዓቱ 00:05፣ 23:59:59፣ 6፡45፤ 12:00-6:30 ሰዓት፤ 24/7 ክፍት ነው",
    "የ2016ቱ፣ በ1990ዎቹ፣ ከ60ዎቹ፣ የ80ዓመቱ ሰው 5ቱን ወሰደ።",
    "Tesfaye ይህን said yesterday that ዋጋው USD 5.00 ነው",
    "ዝርዝር፦ ሀ) ቡና፤ ለ) ሻይ፤ ሐ) ወተት፥ መ) ውሃ፠ ፩፣፪፣፫…፻፣፼",
    "ኢትዮጵያ፡ሀገራችን፡ናት፡፡" * 40,
    "ሰላም" * 150,
    "«ሰላም!» አለ። «ደህና ነው።» «እሺ?» አለች።",
]
READ = """
import json, sys
from spoken_text import spoken
lines = [spoken(text) for text in json.load(sys.stdin)]
print(json.dumps([lines, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_text_package(folder, OPTIONS)
    return folder


@pytest.fixture(scope="module")
def spoken(folder: Path) -> dict[str, str]:
    """Return each text as the package in the folder writes it."""
    answer = run(folder, "-c", READ, given=json.dumps(TEXTS))
    lines, modules = json.loads(answer)
    assert not {"torch", "indextts", "numpy", "sentencepiece"} & set(modules)
    return dict(zip(TEXTS, lines, strict=True))


def run(folder: Path, *argv: str, given: str = "") -> str:
    answer = subprocess.run(
        [sys.executable, *argv], cwd=folder, input=given, capture_output=True, text=True, encoding="utf-8"
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_the_package_reads_texts_as_the_training_does(spoken: dict[str, str]):
    moved = re.compile(r"(^|[.!?…] ?)'")  # quotes that the official rules duplicate or move
    assert sum(bool(moved.search(normalize(text, OPTIONS))) for text in TEXTS) > 2
    for text in TEXTS:
        assert spoken[text].replace("'", "") == normalize(text, OPTIONS).replace("'", "").strip(), text
        assert not moved.search(spoken[text]), text
    assert spoken["BBC በ2017 ዓ.ም። ፀሐይ ወጣች፤ 50% ብቻ፧"].startswith("ቢቢሲ በሁለት ሺህ")


def test_the_package_prints_the_spoken_form_of_its_arguments_and_lines(folder: Path):
    assert run(folder, "-m", "spoken_text", "BBC", "5") == "ቢቢሲ አምስት\n"
    assert run(folder, "-m", "spoken_text", given="BBC\n5 ልጆች\n") == "ቢቢሲ\nአምስት ልጆች\n"


def test_the_requirements_are_the_packages_that_the_copies_import(folder: Path):
    required = (folder / "spoken_text/requirements.txt").read_text().splitlines()
    imported = set()
    for path in (folder / "spoken_text").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
            elif isinstance(node, ast.Import):
                imported |= {name.name.partition(".")[0] for name in node.names}
    foreign = imported - set(sys.stdlib_module_names) - {"spoken_text"}
    names = {metadata.packages_distributions()[name][0].lower() for name in foreign}
    assert {line.partition(">=")[0] for line in required} == names


def test_the_official_front_end_keeps_the_text_of_the_package(spoken: dict[str, str]):
    """No unknown piece, no Chinese reading, and the tokens of the training."""
    base = REPOSITORY / "tests/base_2.0/bpe.model"
    texts = [text for text in TEXTS if any(map(is_ethiopic, spoken[text])) and not CJK.search(text)]
    assert len(texts) > 200
    model = extend(base, texts, 100_000, homophones="strict")
    tokenizer = Tokenizer(model, base, OPTIONS)
    exported = with_ethiopic_marks(model)
    known = set(tokenizer.pieces)
    for text in texts:
        pieces = official_pieces(spoken[text], exported)
        assert pieces == tokenizer.normalized_pieces(spoken[text]), text
        is_amharic = all(is_ethiopic(char) or char in " .,?!…-'" for char in spoken[text])
        assert set(pieces) <= known or not is_amharic, text
        assert not IDEOGRAPH.search(official_input(spoken[text])), text


def test_the_official_front_end_cuts_a_long_text_at_ethiopic_marks():
    base = REPOSITORY / "tests/base_2.0/bpe.model"
    words = ["ሰላም", "ለዓለም", "ሁሉ", "ይሁን", "ብለው", "ተናገሩ", "መልካም", "ቀን"]
    clause = " ".join(words * 5)
    text = f"{clause}፣ {clause}፤ {clause}። {' '.join(words)}። {clause}፦ {clause}፧"
    model = extend(base, [" ".join(words[:4])], 100_000)  # of the other words it knows the letters at most

    def segments(model: bytes) -> list[list[str]]:
        return official_segments(official_pieces(text, model))

    unchanged, exported = segments(model), segments(with_ethiopic_marks(model))
    assert any(not segment[0].startswith("▁") for segment in unchanged)  # cut inside a word
    assert [segment[-1] for segment in exported] == [",", ",", ".", ".", ",", "?"]
    assert max(map(len, exported)) <= MAX_PIECES


@pytest.mark.long
def test_the_official_front_end_of_2_5_gives_the_text_of_the_package_the_tokens_of_the_training(
    tmp_path: Path,
):
    base = write_ranks(tmp_path)
    texts = [*(text for text in TEXTS if any(map(is_ethiopic, text))), "የGoogle ስልክ", "ሰላም!"]
    size = load_tokenizer(base).size + 300
    options = {"homophones": "strict", "readings": OPTIONS.readings}
    tokenizer = extend_file(base, texts, tmp_path / "am.tiktoken", size, None, options).extended
    assert isinstance(tokenizer, ByteLevelTokenizer)
    write_text_package(tmp_path, tokenizer.options)
    lines, modules = json.loads(run(tmp_path, "-c", READ, given=json.dumps(texts)))
    assert not {"torch", "indextts", "numpy", "sentencepiece", "tiktoken"} & set(modules)
    assert len(texts) > 150
    for text, spoken in zip(texts, lines, strict=True):
        *ids, end = official_ids_of_2_5(spoken, tokenizer.official_ranks)
        expected = re.sub(r"(?<![!?])!(?!!)", ".", tokenizer.normalize(text))
        assert [tokenizer.official_order[token] for token in ids] == tokenizer.encode_normalized(expected), (
            text
        )
        assert end == 1
    assert "ሰላም." in lines[texts.index("ሰላም!")]
    assert "Google" in tokenizer.decode(tokenizer.encode("የGoogle ስልክ"))


def test_the_official_front_end_alone_reads_numbers_in_chinese():
    assert IDEOGRAPH.findall(official_input("በ2017 ዓ.ም።")) == list("二零一七")
    assert "TWO" in official_input("BBC በ2017")
