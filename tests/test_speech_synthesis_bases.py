"""Tests of indextts/speech/synthesis/acoustic.py: IndexTTS-2.5 speaks, and bases are not mixed."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from indextts.commands.speech import Synthesize
from indextts.errors import RESUME_REFUSED, UserError
from indextts.features.semantic_codec import HalvingCodec, SemanticCodecConfig
from indextts.speech.synthesis.bases import AcousticPath
from indextts.speech.synthesis.synthesize import synthesize
from indextts.speech.synthesis.trained_model import load_trained
from tests.acoustic_files import write_acoustic_files, write_files_of_2_5
from tests.conftest import REPOSITORY
from tests.published_files import CODEC
from tests.tiny_run import BASE_TOKENIZER

VOICE = sorted(path for path in (REPOSITORY / "demo/audio").rglob("*") if path.is_file())[0]
TEXT = "ሰላም ለዓለም። ደህና ነው!"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files_of_2_5(tmp_path_factory.mktemp("published"))


def spoken(folder: Path, output: Path, **changes: object) -> np.ndarray:
    fields = {"checkpoint": folder, "models": folder, "voice": str(VOICE), "text": [TEXT], "output": output}
    fields |= {"device": "cpu", "solver_steps": 2, "num_beams": 1, "max_codes": 30} | changes
    list(synthesize(Synthesize(**fields)))
    samples, rate = soundfile.read(output)
    assert rate == 22_050
    return samples


@pytest.fixture
def path() -> AcousticPath:
    return AcousticPath(HalvingCodec(SemanticCodecConfig(**CODEC)), s2mel=None)  # type: ignore[arg-type]


def test_two_features_of_a_code_become_172_hundredths_of_a_frame_each(path: AcousticPath):
    assert [path.num_frames(number, 1.0) for number in range(1, 1819)] == [
        86 * number // 25 for number in range(1, 1819)
    ]


def test_the_factor_is_multiplied_as_in_the_published_code(path: AcousticPath):
    lower = [number for number in range(1, 1819) if path.num_frames(number, 1.25) != 43 * number // 10]
    assert lower == [230, 460, 870, 920, 1740, 1790]


def test_a_folder_of_2_5_speaks_and_the_duration_factor_changes_the_length_only(folder: Path, tmp_path: Path):
    trained = load_trained(folder, torch.device("cpu"))
    assert trained.gpt.reads_style
    assert trained.tokenizer.language_row == 75
    plain = spoken(folder, tmp_path / "a.wav")
    slow = spoken(folder, tmp_path / "b.wav", duration_factor=2)
    assert len(plain) >= 256
    assert len(slow) == 2 * len(plain) or len(slow) == 2 * len(plain) + 256
    np.testing.assert_array_equal(spoken(folder, tmp_path / "c.wav"), plain)


@pytest.mark.long
def test_the_language_of_the_tokenizer_reaches_the_model(folder: Path, tmp_path: Path):
    trained = load_trained(folder, torch.device("cpu"))
    weights = torch.load(folder / "gpt.pth", weights_only=True)
    assert torch.equal(trained.gpt.state_dict()["lang_embedding.weight"], weights["lang_embedding.weight"])
    plain = spoken(folder, tmp_path / "a.wav")
    changed = write_files_of_2_5(tmp_path / "changed")
    weights["lang_embedding.weight"][:75] *= -9  # rows of other languages
    torch.save(weights, changed / "gpt.pth")
    np.testing.assert_array_equal(spoken(changed, tmp_path / "b.wav"), plain)
    weights["lang_embedding.weight"][75] *= -9
    torch.save(weights, changed / "gpt.pth")
    other = spoken(changed, tmp_path / "c.wav")
    assert other.shape != plain.shape or not np.array_equal(other, plain)


def test_a_duration_factor_for_2_0_and_files_of_the_other_base_are_refused(folder: Path, tmp_path: Path):
    other = write_acoustic_files(tmp_path / "2.0")
    (other / "bpe.model").write_bytes(BASE_TOKENIZER.read_bytes())
    with pytest.raises(UserError, match=r"--duration-factor 1\.5: IndexTTS-2\.0"):
        spoken(other, tmp_path / "a.wav", duration_factor=1.5)
    for checkpoint, models in ((folder, other), (other, folder)):
        with pytest.raises(UserError, match=rf"{models}: .*IndexTTS-2\.\d, but {checkpoint}") as refusal:
            spoken(checkpoint, tmp_path / "a.wav", models=models)
        assert refusal.value.exit_status == RESUME_REFUSED
    assert not (tmp_path / "a.wav").exists()
