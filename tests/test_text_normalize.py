import io
import random
import sys
import unicodedata

import pytest

from indextts.commands.normalizer_options import NORMALIZER_VERSION, NormalizerOptions, Reading
from indextts.text.ethiopic import amharic_letters, is_ethiopic
from indextts.text.normalize import RULES, explain, main, normalize
from tests.normalizer_cases import CLASSES, OPTION_CLASSES
from tests.normalizer_new_cases import CASES as NEW_CASES

# Written form and spoken form. The rules are those of the project's reference page, and most cases are of
# real text; where the form is a choice and not a rule, the table says so.

# A prefix or an ending is joined to the number; a lone letter before it is a prefix too, as in TICO-19.
PREFIXES_AND_ENDINGS = [
    ("ከ 15 ሰዎች", "ከአሥራ አምስት ሰዎች"),
    ("16ኛን", "አሥራ ስድስተኛን"),
    ("የ19ነኛው", "የአሥራ ዘጠነኛው"),
    ("5 ኛ", "አምስተኛ"),
    ("10ሩ", "አሥሩ"),
    ("1930ዎቹ", "አንድ ሺህ ዘጠኝ መቶ ሠላሳዎቹ"),
    ("1000ዎች", "አንድ ሺዎች"),
    ("ሀ 1860s", "ሀ አንድ ሺህ ስምንት መቶ ስልሳዎቹ"),
    ("ሀ 21st", "ሀ ሃያ አንደኛ"),
    ("ስለ2 ነገር", "ስለሁለት ነገር"),
    ("5-ኛ ክፍል", "አምስተኛ ክፍል"),
]
# A bracket that says the same number again is dropped; a number of 9 digits or more without groups is a row.
DECIMALS_AND_GROUPS = [
    (".5", "ዜሮ ነጥብ አምስት"),
    ("52,000 (ሃምሳ ሁለት ሺህ) ሰዎች", "ሃምሳ ሁለት ሺህ ሰዎች"),
    ("52,000 (ሀምሳ ሁለት ሺ) ሰዎች", "ሃምሳ ሁለት ሺህ ሰዎች"),
    ("አምስት (5) ቀናት", "አምስት ቀናት"),
    ("ሰዎች (5) ቀናት", "ሰዎች 'አምስት' ቀናት"),
    ("3 000 ሰዎች", "ሦስት ሺህ ሰዎች"),
]
# A range says percent once; ቱ, an ending of numbers, becomes the ው that በመቶ takes. A choice: both occur.
PERCENT = [
    ("ከ88-92%", "ከሰማንያ ስምንት እስከ ዘጠና ሁለት በመቶ"),
    ("14%-20%", "ከአሥራ አራት እስከ ሃያ በመቶ"),
    ("(40%-42%)፣", "'ከአርባ እስከ አርባ ሁለት በመቶ',"),
    ("86%ቱ", "ሰማንያ ስድስት በመቶው"),
    ("5% በመቶ", "አምስት በመቶ"),
    ("5‰", "አምስት በሺህ"),
]
# The currency is read after the whole amount. A choice: two decimals are cents.
MONEY = [
    ("$5", "አምስት ዶላር"),
    ("$140 ሚሊዮን", "አንድ መቶ አርባ ሚሊዮን ዶላር"),
    ("€3.1ቢሊዮን ($3.6bn)", "ሦስት ነጥብ አንድ ቢሊዮን ዩሮ 'ሦስት ነጥብ ስድስት ቢሊዮን ዶላር'"),
    ("US$4.9 ሚሊዮን", "አራት ነጥብ ዘጠኝ ሚሊዮን የአሜሪካ ዶላር"),
    ("$250,000 ዶላር", "ሁለት መቶ ሃምሳ ሺህ ዶላር"),
    ("$1.58 ቢሊዮን ዩኤስ ዶላር", "አንድ ነጥብ አምስት ስምንት ቢሊዮን ዩኤስ ዶላር"),
    ("የ$200 ቢሊዮን(£150 ቢሊዮን)", "የሁለት መቶ ቢሊዮን ዶላር 'አንድ መቶ ሃምሳ ቢሊዮን ፓውንድ'"),
    ("12.50 ብር", "አሥራ ሁለት ብር ከሃምሳ ሳንቲም"),
    ("12.05 ብር", "አሥራ ሁለት ብር ከአምስት ሳንቲም"),
    ("$5-10", "ከአምስት እስከ አሥር ዶላር"),
    ("ሀ 100 ETB", "ሀ አንድ መቶ ብር"),
    ("£120", "አንድ መቶ ሃያ ፓውንድ"),
    ("C$192 ሚሊዮን", "አንድ መቶ ዘጠና ሁለት ሚሊዮን የካናዳ ዶላር"),
    ("50$", "ሃምሳ ዶላር"),
    ("$ ብቻ", "ዶላር ብቻ"),
]
# Led by 0 or +, or three groups with hyphens: digit by digit. A choice of the reference.
PHONE_NUMBERS = [
    ("+251 911 234567", "ፕላስ ሁለት አምስት አንድ ዘጠኝ አንድ አንድ ሁለት ሦስት አራት አምስት ስድስት ሰባት"),
    ("+251911234567 ይደውሉ", "ፕላስ ሁለት አምስት አንድ ዘጠኝ አንድ አንድ ሁለት ሦስት አራት አምስት ስድስት ሰባት ይደውሉ"),
    ("0911 23 45 67", "ዜሮ ዘጠኝ አንድ አንድ ሁለት ሦስት አራት አምስት ስድስት ሰባት"),
    ("0800 555 111", "ዜሮ ስምንት ዜሮ ዜሮ አምስት አምስት አምስት አንድ አንድ አንድ"),
    ("859-292-3680", "ስምንት አምስት ዘጠኝ ሁለት ዘጠኝ ሁለት ሦስት ስድስት ስምንት ዜሮ"),
]
# A choice: fractions have denominators to 10; other pairs are read as they stand, with ከ before a large one.
FRACTIONS_AND_SLASHES = [
    ("14½-13½", "አሥራ አራት ተኩል አሥራ ሦስት ተኩል"),
    ("2/3ኛውን", "ሁለት ሦስተኛውን"),
    ("1/2", "ግማሽ"),
    ("24/7", "ሃያ አራት ሰባት"),
    ("ማርች 26∕2020", "ማርች ሃያ ስድስት ሁለት ሺህ ሃያ"),
    ("የ2017/18", "የሁለት ሺህ አሥራ ሰባት አሥራ ስምንት"),
    ("97,039/1,617,204", "ዘጠና ሰባት ሺህ ሠላሳ ዘጠኝ ከአንድ ሚሊዮን ስድስት መቶ አሥራ ሰባት ሺህ ሁለት መቶ አራት"),
    ("0.31/100,000 ወንዶች", "ዜሮ ነጥብ ሦስት አንድ ከአንድ መቶ ሺህ ወንዶች"),
    ("ኤችአይቪ-1/2", "ኤችአይቪ አንድ ሁለት"),
    ("ጃንዋሪ 06/2020", "ጃንዋሪ ስድስት ሁለት ሺህ ሃያ"),
]
# A choice: the second is larger in a range; else it is a score, which texts write 2ለ0.
RANGES_AND_SCORES = [
    ("የ2020-2021", "የሁለት ሺህ ሃያ እስከ ሁለት ሺህ ሃያ አንድ"),
    ("በ17-5", "በአሥራ ሰባት ለአምስት"),
    ("95-93", "ዘጠና አምስት ለዘጠና ሦስት"),
    ("38 – 17", "ሠላሳ ስምንት ለአሥራ ሰባት"),
    ("2019–20", "ከሁለት ሺህ አሥራ ዘጠኝ እስከ ሃያ"),
    ("2015- 16", "ከሁለት ሺህ አሥራ አምስት እስከ አሥራ ስድስት"),
    ("2ለ0", "ሁለት ለዜሮ"),
    ("13-21-3", "አሥራ ሦስት ሃያ አንድ ሦስት"),
    ("ከ10-5", "ከአሥር እስከ አምስት"),
]
# Read as they stand: calendars are never converted.
DATES = [
    ("14/05/2020", "አሥራ አራት አምስት ሁለት ሺህ ሃያ"),
    ("12.03.2020", "አሥራ ሁለት ሦስት ሁለት ሺህ ሃያ"),
    ("ማርች 15፣ 2020 8:00 ጠዋት", "ማርች አሥራ አምስት, ሁለት ሺህ ሃያ ስምንት ሰዓት ጠዋት"),
]
# Read as they stand: neither clock is converted. With seconds, with ደቂቃ or past 24 hours it is a race's time.
TIMES = [
    ("በ3:45", "በሦስት ሰዓት ከአርባ አምስት ደቂቃ"),
    ("በ02:30", "በሁለት ተኩል"),
    ("00:24", "ዜሮ ሰዓት ከሃያ አራት ደቂቃ"),
    ("8:00-17:00", "ከስምንት ሰዓት እስከ አሥራ ሰባት ሰዓት"),
    ("ከ8:00-17:00 ሰዓት", "ከስምንት ሰዓት እስከ አሥራ ሰባት ሰዓት"),
    ("2፡19፡52", "ሁለት ሰዓት ከአሥራ ዘጠኝ ደቂቃ ከሃምሳ ሁለት ሰከንድ"),
    ("2፡59 ደቂቃ", "ሁለት ደቂቃ ከሃምሳ ዘጠኝ ሰከንድ"),
    ("29፡01.03", "ሃያ ዘጠኝ ደቂቃ ከአንድ ነጥብ ዜሮ ሦስት ሰከንድ"),
    ("በ63፡43", "በስልሳ ሦስት ደቂቃ ከአርባ ሦስት ሰከንድ"),
    ("ዮሐንስ 3:16", "ዮሐንስ ምዕራፍ ሦስት ቁጥር አሥራ ስድስት"),
    ("1:5", "አንድ ለአምስት"),
    ("12:00", "አሥራ ሁለት ሰዓት"),
    ("12:45", "ለአንድ ሩብ ጉዳይ"),
]
# They become digits and are read by the same rules; signs in no order one by one.
ETHIOPIC_NUMERALS = [
    ("፲፱፻፹፭", "አንድ ሺህ ዘጠኝ መቶ ሰማንያ አምስት"),
    ("፬ኛ", "አራተኛ"),
    ("በ፲፰፻፷፰ ዓ.ም", "በአንድ ሺህ ስምንት መቶ ስልሳ ስምንት ዓመተ ምሕረት"),
    ("፩፪፫", "አንድ ሁለት ሦስት"),
    ("፫፡፴", "ሦስት ተኩል"),
]
# Expansions of the reference. ሚ/ር is ambiguous (ministry or minister): minister is a choice.
ABBREVIATIONS = [
    ("ት/ቤት", "ትምህርት ቤት"),
    ("በት/ቤቶች", "በትምህርት ቤቶች"),
    ("የጽ/ቤቱ", "የጽሕፈት ቤቱ"),
    ("ዶ/ርን", "ዶክተርን"),
    ("ዶ/ሩ", "ዶክተሩ"),
    ("ወ/ሪት", "ወይዘሪት"),
    ("ጠ/ሚ", "ጠቅላይ ሚኒስትር"),
    ("ጠ/ሚኒስትሩ", "ጠቅላይ ሚኒስትሩ"),
    ("ም/ጠ/ሚ", "ምክትል ጠቅላይ ሚኒስትር"),
    ("ሚ/ሩ", "ሚኒስትሩ"),
    ("ኃ/የተ/የግ/ማ", "ኃላፊነቱ የተወሰነ የግል ማኅበር"),
    ("ኃ.የተ.የግ.ማ.", "ኃላፊነቱ የተወሰነ የግል ማኅበር."),
    ("ኃ/ማርያም", "ኃይለ ማርያም"),
    ("ገ/ሥላሴ", "ገብረ ሥላሴ"),
    ("ወ/ጊዮርጊስ", "ወልደ ጊዮርጊስ"),
    ("እና/ወይም", "እና ወይም"),
    ("እ.ኤ.አ. በ2019", "እንደ ኤውሮፓውያን አቆጣጠር በሁለት ሺህ አሥራ ዘጠኝ"),
    ("እ.ኤ.አ 2019", "እንደ ኤውሮፓውያን አቆጣጠር ሁለት ሺህ አሥራ ዘጠኝ"),
    ("ከእ.ኤ.አ. 2010", "ከእንደ ኤውሮፓውያን አቆጣጠር ሁለት ሺህ አሥር"),
    ("በዩ.ኤስ. ነው", "በዩ ኤስ ነው"),
    ("ኤፍ.ቢ.አይ", "ኤፍ ቢ አይ"),
    ("የተ.መ.ድ", "የተባበሩት መንግሥታት ድርጅት"),
    ("ረ/ፕ/ር", "ረዳት ፕሮፌሰር"),
    ("ፕ/ት", "ፕሬዚዳንት"),
    ("ት/ቤቱን", "ትምህርት ቤቱን"),
    ("ት∕ቤት", "ትምህርት ቤት"),
    ("ም/ቤት", "ምክር ቤት"),
    ("የመ/ቤቶች", "የመሥሪያ ቤቶች"),
    ("ፍ/ቤት", "ፍርድ ቤት"),
    ("ፅ/ቤት", "ጽሕፈት ቤት"),
    ("ቤ/ክ", "ቤተ ክርስቲያን"),
    ("ጄ/ል", "ጄኔራል"),
    ("ኮ/ል", "ኮሎኔል"),
    ("ሌ/ጄኔራል", "ሌተና ጄኔራል"),
    ("ሆ/ል", "ሆስፒታል"),
    ("ተ/ሃይማኖት", "ተክለ ሃይማኖት"),
    ("ቅ/ጊዮርጊስ", "ቅዱስ ጊዮርጊስ"),
    ("በአ/አ", "በአዲስ አበባ"),
    ("በ2011 ዓ/ም", "በሁለት ሺህ አሥራ አንድ ዓመተ ምሕረት"),
    ("ም/ፕሬዚዳንት", "ምክትል ፕሬዚዳንት"),
    ("ዶ / ር", "ዶክተር"),
    ("ተ.መ. ድ", "የተባበሩት መንግሥታት ድርጅት"),
    ("ሕብረት/የአውሮፓ", "ሕብረት የአውሮፓ"),
    ("ነው.እሱ", "ነው. እሱ"),
    ("የዩ.ኤስ-ቻይና", "የዩ ኤስ-ቻይና"),
]
# A choice: a degree sign makes of the hyphen before the number a minus, nothing else does.
MEASURES_AND_SIGNS = [
    ("5 ኪ.ሜ", "አምስት ኪሎ ሜትር"),
    ("5ኪ.ሜ.", "አምስት ኪሎ ሜትር."),
    ("60 ኪ.ሜ/ሰ", "ስልሳ ኪሎ ሜትር በሰዓት"),
    ("10,000ሜ. ሪከርድ", "አሥር ሺህ ሜትር ሪከርድ"),
    ("ሀ 60 km/h", "ሀ ስልሳ ኪሎ ሜትር በሰዓት"),
    ("25 ሜ²", "ሃያ አምስት ካሬ ሜትር"),
    ("ሀ -5°C", "ሀ ከዜሮ በታች አምስት ዲግሪ ሴልሺየስ"),
    ("−5", "ሲቀነስ አምስት"),
    ("5 − 3", "አምስት ሲቀነስ ሦስት"),
    ("5+3=8", "አምስት ሲደመር ሦስት እኩል ነው ስምንት"),
    ("4×3", "አራት ሲባዛ በሦስት"),
    ("≥60", "ቢያንስ ስልሳ"),
    ("<18", "ከአሥራ ስምንት በታች"),
    ("~10", "ወደ አሥር"),
    ("10~20%", "ከአሥር እስከ ሃያ በመቶ"),
    ("±5", "ሲደመር ወይም ሲቀነስ አምስት"),
    ("ሀ CD4+", "ሀ CD አራት ፕላስ"),
    ("5 ኪ.ሜ²", "አምስት ካሬ ኪሎ ሜትር"),
    ("90°", "ዘጠና ዲግሪ"),
]
# Letters and digits of a name are read separately. Latin stays, in upper case.
LATIN_AND_NAMES = [
    ("COVID-19ን", "COVID አሥራ ዘጠኝን"),
    ("ኮቪድ-19", "ኮቪድ አሥራ ዘጠኝ"),
    ("ሳርስ-ኮቭ-2-ተዛማጅ", "ሳርስ-ኮቭ ሁለት ተዛማጅ"),
    ("ሀ H1N1", "ሀ H አንድ N አንድ"),
    ("ሀ N95", "ሀ N ዘጠና አምስት"),
    ("የCOVID-19", "የCOVID አሥራ ዘጠኝ"),
    ("U.S. ነው", "US ነው"),
    ("https://tinyurl.com/vqu35cj ነው", "TINYURL ነጥብ COM VQU ሠላሳ አምስት CJ ነው"),
    ("a.b@c.com ነው", "A ነጥብ B አት C ነጥብ COM ነው"),
    ("IL-1β ነው", "IL አንድ ቤታ ነው"),
    ("ወ.ዘ.ተ.", "ወዘተ."),
    ("ወዘተ. ነው", "ወዘተ ነው"),
    ("#5", "ቁጥር አምስት"),
    ("2-ሳምንት", "ሁለት ሳምንት"),
    ("2011ጀምሮ", "ሁለት ሺህ አሥራ አንድ ጀምሮ"),
    ("35.5ሚሊዮን", "ሠላሳ አምስት ነጥብ አምስት ሚሊዮን"),
    ("መጠኑ7.5", "መጠኑ ሰባት ነጥብ አምስት"),
    ("123456789012", "አንድ ሁለት ሦስት አራት አምስት ስድስት ሰባት ስምንት ዘጠኝ ዜሮ አንድ ሁለት"),
    ("በ|ላ", "በኋላ"),
    ("007", "ዜሮ ዜሮ ሰባት"),
    ("5፣6 እና 7", "አምስት, ስድስት እና ሰባት"),
    ("50፣000", "ሃምሳ ሺህ"),
    ("ሚር. ትራምፕ", "ሚስተር ትራምፕ"),
    ("v2.5.1 ነው", "V ሁለት ነጥብ አምስት ነጥብ አንድ ነው"),
    ("በ6am፣", "በስድስት AM,"),
    ("ሰዓት 14:00 UTC/07:00 PT", "ሰዓት አሥራ አራት ሰዓት UTC ሰባት ሰዓት PT"),
    ("500 ሜ/ሰ", "አምስት መቶ ሜትር በሰከንድ"),
    ("ተ¹ዳኝ አዙ[ል", "ተጓዳኝ አዙሯል"),
    ("S&amp;P ነው", "S እና P ነው"),
    ("ሰው(HIV)ን", "ሰው 'HIV'ን"),
    ("٣ ሰው", "ሦስት ሰው"),
]
TABLES = {
    "affixes": PREFIXES_AND_ENDINGS,
    "decimals": DECIMALS_AND_GROUPS,
    "percent": PERCENT,
    "money": MONEY,
    "phone numbers": PHONE_NUMBERS,
    "fractions": FRACTIONS_AND_SLASHES,
    "ranges": RANGES_AND_SCORES,
    "dates": DATES,
    "times": TIMES,
    "Ethiopic numerals": ETHIOPIC_NUMERALS,
    "abbreviations": ABBREVIATIONS,
    "measures": MEASURES_AND_SIGNS,
    "names": LATIN_AND_NAMES,
}
CASES = {
    f"{name} {number}": [({}, *case) for case in cases]
    for number, tables in enumerate((TABLES, CLASSES, NEW_CASES))
    for name, cases in tables.items()
} | OPTION_CLASSES

OTHER_OPTIONS = NormalizerOptions(
    homophones="loose",
    labialised="merge",
    letter_case="keep",
    acronyms="letters",
    years="hundreds",
    phone_numbers="pairs",
    money_decimals="decimal",
    thousand="ሺ",
    million="ሚሊየን",
    fifty="አምሳ",
    sixty="ስድሳ",
    eighty="ሰማኒያ",
    percent="ፐርሰንት",
)


@pytest.mark.parametrize("name", CASES)
def test_a_text_is_written_as_it_is_spoken_and_only_once(name):
    for options, text, spoken in CASES[name]:
        chosen = NormalizerOptions(**options)
        assert normalize(text, chosen) == spoken
        assert normalize(spoken, chosen) == spoken
        other = normalize(text, OTHER_OPTIONS)
        assert normalize(other, OTHER_OPTIONS) == other


@pytest.mark.parametrize("table", TABLES)
def test_a_quoted_text_is_read_as_the_text_alone(table):
    for text, spoken in TABLES[table]:
        if spoken[0].isalpha() and spoken[-1].isalpha():  # a mark would meet the quote
            assert normalize(f"እንዲህ አለ፦ «{text}» ብሎ") == f"እንዲህ አለ, '{spoken}' ብሎ"


@pytest.mark.parametrize(
    "line", ["{}", "{}/3", "3/{}", "{}.5", "{}ኛ", "ከ{}-3", "{},000", "-{}%", "0911234567/{}"]
)
def test_a_number_of_thousands_of_digits_is_read(line):
    once = normalize("ሀ " + line.format("5" * 5_000))
    assert not any(map(str.isdigit, once))
    assert normalize(once) == once


def test_the_amharic_letters_are_the_291_that_every_amharic_tokenizer_must_hold(shared):
    required = (shared / "data" / "amharic" / "required_chars.txt").read_text("utf-8").strip()
    assert len(amharic_letters()) == 291
    assert set(amharic_letters()) == set(required)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ሰላም ነው።", "ሰላም ነው."),
        ("ሰላም ነው፡፡ እሺ", "ሰላም ነው. እሺ"),
        ("ሰላም ነው:: እሺ", "ሰላም ነው. እሺ"),
        ("ሰላም ነው፡። እሺ፡:", "ሰላም ነው. እሺ."),
        ("ሰላም ነው ፡ ፡ እሺ", "ሰላም ነው. እሺ"),
        ("ሰላም፣ ለሁሉ፤ አሉ፥ እንዲህ፦ ሄደ", "ሰላም, ለሁሉ, አሉ, እንዲህ, ሄደ"),
        ("ሄደ፧ የት፨", "ሄደ? የት."),
        ("ቃል፡ቃል፡ቃል።", "ቃል ቃል ቃል."),
        ("ቃል:ቃል", "ቃል ቃል"),
        ("እንዲህ: ሄደ", "እንዲህ, ሄደ"),
        ("እንዲህ፡- ሄደ :– መጣ", "እንዲህ, ሄደ, መጣ"),
        ("፠ምዕራፍ ÷ ሰላም÷ ነው", "ምዕራፍ ሲካፈል ሰላም, ነው"),
    ],
)
def test_ethiopic_marks_and_their_look_alikes_become_ascii(text, expected):
    assert normalize(text) == expected


def test_two_word_spaces_after_a_number_are_a_full_stop():
    assert normalize("በ1985፡፡ በ1985፡ ዓ.ም") == "በአንድ ሺህ ዘጠኝ መቶ ሰማንያ አምስት. በአንድ ሺህ ዘጠኝ መቶ ሰማንያ አምስት ዓመተ ምሕረት"


def test_a_word_that_follows_an_ethiopic_mark_without_a_space_gets_one():
    assert normalize("ነው።እሱ፣5 ሰው") == "ነው. እሱ, አምስት ሰው"
    assert normalize("ሰላም፣5፣6") == "ሰላም, አምስት, ስድስት"


def test_quotes_and_brackets_become_apostrophes_as_in_the_published_front_end():
    assert normalize('“ሰላም” «ነው» ‹አለ› (እሱ) [እሷ] "ሄደ" <<መጣ>>') == "'ሰላም' 'ነው' 'አለ' 'እሱ' 'እሷ' 'ሄደ' 'መጣ'"


def test_dashes_ellipses_and_full_width_marks_become_those_of_the_published_front_end():
    assert normalize("ሰላም — ነው… እሺ... አለ，ሄደ！ ድረ–ገጽ ~ሰው") == "ሰላም - ነው… እሺ… አለ, ሄደ! ድረ-ገጽ -ሰው"


def test_invisible_characters_and_emoji_disappear():
    assert normalize("\ufeffሰ\u200bላ\u00adም\u200e ነ\x00ው 3\ufe0f\u20e3😀ሄደ\ud800") == "ሰላም ነው ሦስት ሄደ"


def test_every_kind_of_space_becomes_one_space():
    assert normalize("\t ሰላም\u00a0\u202f\u3000ነው \r\n እሺ\u2028 ፣ ሄደ \u2581") == "ሰላም ነው እሺ, ሄደ"


def test_latin_letters_become_upper_case_and_composed():
    assert normalize("የgoogle Man\u0303ana straße ñ") == "የGOOGLE MAÑANA STRASSE Ñ"


def test_text_of_another_script_keeps_its_digits_and_signs():
    assert normalize("In 2019, 50% of it & more™") == "IN 2019, 50% OF IT & MORE™"
    assert normalize("武汉 2019") == "武 汉 2019"  # ideographs stand apart, as in the published front end
    assert normalize("2019") == "ሁለት ሺህ አሥራ ዘጠኝ"  # no letter at all: it is for an Amharic voice
    assert normalize("&#4656;A5") == "ሰA አምስት"  # what script it is shows when entities are read


@pytest.mark.parametrize("text", ["", " ", "\n", "፡", "\u200b", "😀"])
def test_a_text_without_spoken_characters_becomes_empty(text):
    assert normalize(text) == ""


@pytest.mark.parametrize(
    ("options", "text", "expected"),
    [
        ({"homophones": "strict"}, "5 ዓ.ም ፀሐይ ኸኻ", "አምስት አመተ ምህረት ጸሀይ ኸኻ"),
        ({"homophones": "loose"}, "3 ኻያ", "ሶስት ሀያ"),
        ({"labialised": "merge"}, "ጐንደር", "ጎንደር"),
        ({"letter_case": "keep"}, "የgoogle Mañana straße BBC 5%", "የgoogle Mañana straße BBC አምስት በመቶ"),
        ({"acronyms": "letters"}, "የBBC ዜና UK Google", "የቢ ቢ ሲ ዜና ዩ ኬ GOOGLE"),
        (
            {"years": "hundreds"},
            "በ1985 2017 1,985",
            "በአሥራ ዘጠኝ መቶ ሰማንያ አምስት ሁለት ሺህ አሥራ ሰባት አንድ ሺህ ዘጠኝ መቶ ሰማንያ አምስት",
        ),
        ({"phone_numbers": "pairs"}, "0911 234567", "ዜሮ ዘጠኝ አሥራ አንድ ሃያ ሦስት አርባ አምስት ስልሳ ሰባት"),
        ({"thousand": "ሺ", "eighty": "ሰማኒያ"}, "1,080 5000ኛ", "አንድ ሺ ሰማኒያ አምስት ሺኛ"),
        ({"money_decimals": "decimal"}, "12.50 ብር", "አሥራ ሁለት ነጥብ አምስት ዜሮ ብር"),
        ({"percent": "ፐርሰንት"}, "50%", "ሃምሳ ፐርሰንት"),
    ],
)
def test_options_change_the_spoken_form(options, text, expected):
    assert normalize(text, NormalizerOptions(**options)) == expected


def test_a_repeated_number_is_recognised_in_any_spelling():
    assert normalize("80,000 (ሰማኒያ ሺ) ሰው") == "ሰማንያ ሺህ ሰው"
    assert normalize("80,000 (ሰማኒያ) ሰው") == "ሰማንያ ሺህ 'ሰማኒያ' ሰው"


def test_the_fingerprint_names_the_version_and_every_option():
    default = NormalizerOptions()
    assert default.fingerprint == NormalizerOptions().fingerprint
    assert default.fingerprint.startswith(f"v{NORMALIZER_VERSION}-")
    newer = {
        "language": "ko",
        "language_row": "common",
        "rules_off": ("dates",),
        "readings": (Reading("BBC", "ቢቢሲ", "word"),),
    }
    others = OTHER_OPTIONS.model_copy(update=newer)
    changed = [default.model_copy(update={n: getattr(others, n)}) for n in NormalizerOptions.model_fields]
    assert len({options.fingerprint for options in [default, *changed]}) == 1 + len(changed)
    assert NormalizerOptions.model_validate_json(OTHER_OPTIONS.model_dump_json()) == OTHER_OPTIONS


def test_the_listed_changes_turn_the_text_into_its_spoken_form():
    text = "በ2017 ት/ቤት፣ 50%"
    changes = explain(text)
    assert [change.rule for change in changes] == [
        "Ethiopic marks",
        "abbreviations",
        "percent",
        "numbers",
        "numbers",
    ]
    assert ("ት/ቤት,", "ትምህርት ቤት,") in {(change.before, change.after) for change in changes}
    assert explain(normalize(text)) == []


def test_adjacent_words_that_a_rule_changes_are_listed_together():
    [change] = explain("በ1930ዎቹ 3ቱ")
    assert (change.before, change.after) == ("በ1930ዎቹ 3ቱ", "በአንድ ሺህ ዘጠኝ መቶ ሠላሳዎቹ ሦስቱ")
    assert ("3ቱ", "ሦስቱ") in {(change.before, change.after) for change in explain("በ2017 ዓ.ም 3ቱ ሰው")}


def test_rule_names_are_unique():
    assert len({rule.name for rule in RULES}) == len(RULES)


def is_allowed(char: str) -> bool:
    """Return whether normalised Amharic may contain `char`: letters, combining marks, published marks."""
    return unicodedata.category(char)[0] in "LM" or char in " .,?!…-'"


@pytest.mark.long
def test_normalising_twice_changes_no_character_further():
    # every assigned character; of the ideographs, Hangul and private ones, which are many, every 101st
    for code_point in range(sys.maxunicode + 1):
        char = chr(code_point)
        is_one_of_many = code_point >= 0x3400 and unicodedata.category(char) in ("Lo", "Co", "Cs")
        if unicodedata.category(char) != "Cn" and not (is_one_of_many and code_point % 101):
            once = normalize(f"ሀ{char}ለ3{char}3 a{char}.")
            assert normalize(once) == once, hex(code_point)


WRITTEN = (
    "ሀ ለ በ የ ከ ሜ ዓ.ም ም ዓ ት/ቤት ዶ/ር ኪ.ሜ ኛ ቱ ዎቹ ሰዓት ብር በመቶ እ.ኤ.አ ኤፍ ኤ ነው አምስት ሚር ወዘተ ሺህ ሚሊዮን "
    "ሀ/ስብከት ኪሜ ተኛ ከሰኔ ሙቀቱ ዓክልበ ዲግሪ -5 1ኛ 100,200,300 0911234567 mb kg "
    "5 3 0 12 2019 1985 50,000 30 ፲ ፩፻ ½ ² ¹ . . , ፡ ፡፡ : ። ፣ ፦ ? ! … - – — − / // ∕ ' \" "
    "“ ” ( ) [ ] < > << » % $ € US$ + = & @ # * | _ ° °C × ÷ ~ ≥ \\ ^ ; &amp; &#8203; "
    "A b km COVID U.S. www.a.com ß é µ β Å 武 ª ´ ŉ ﬁ ٣ ① Ⅳ １ Ａ"
)
PARTS = (*WRITTEN.split(" "), " ", " ", " ", "\u200b", "\u0301", "\u135d", "\u1360", "\u0345", "😀")


@pytest.mark.parametrize("options", [NormalizerOptions(), OTHER_OPTIONS], ids=["default", "other"])
def test_random_texts_are_normalised_completely_and_only_once(options):
    chosen = random.Random(0)
    for _ in range(4000):
        text = "".join(chosen.choices(PARTS, k=chosen.randint(1, 9)))
        once = normalize(text, options)
        assert normalize(once, options) == once, ascii(text)
        if any(map(is_ethiopic, once)):
            assert all(map(is_allowed, once)), ascii(text)


@pytest.mark.long
def test_the_real_text_is_normalised_completely_and_only_once(shared):
    folder = shared / "data" / "amharic"
    lines = (folder / "corpus_raw.txt").read_text("utf-8").splitlines()
    rows = (folder / "corpus.tsv").read_text("utf-8").splitlines()[1:]
    texts = {*lines, *(row.split("\t")[2] for row in rows)}
    assert len(texts) > 11_389
    for text in texts:
        once = normalize(text)
        assert all(map(is_allowed, once)), text
        assert not any(map(str.isnumeric, once)), text  # ASCII, Ethiopic and all other numerals
        assert normalize(once) == once, text


@pytest.mark.parametrize("part", ["5", "ሀ", "ሀ ", "5,", "1,000", "5 ", "ኤ.", "a.", "(", "፡", "፩", "ሀ 5 ("])
def test_a_very_long_line_is_normalised_in_bounded_time(part):
    once = normalize("ሀ5" + part * (20_000 // len(part)))
    assert once.startswith("ሀ ")
    assert normalize(once) == once


def test_the_program_normalises_lines_lists_changes_and_skips_what_is_not_utf_8(monkeypatch, capsys):
    content = b"50%\r\n\xe9\n" + "5 ሰው\n".encode("utf-16-le") + "\nሰላም።".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert main(["--explain", "--percent=ፐርሰንት"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[:4] == [
        "ሃምሳ ፐርሰንት",
        "    percent: '50%' -> '50 ፐርሰንት'",
        "    numbers: '50' -> 'ሃምሳ'",
        "",
    ]
    assert out.splitlines()[-2:] == ["ሰላም.", "    Ethiopic marks: 'ሰላም።' -> 'ሰላም.'"]
    assert err.startswith("[Error] standard input:2: byte 1 is not UTF-8")
