"""A run with IndexTTS-2.5 from recordings to speech: preprocess, pairs, train, resume, synthesize."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from indextts.commands.bases import BASES
from indextts.commands.data import Preprocess
from indextts.commands.speech import ExportModel, Synthesize
from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.data.feature_store import FeatureStore
from indextts.data.networks import require_rate_of
from indextts.data.preprocess import preprocess
from indextts.errors import RESUME_REFUSED, UserError
from indextts.features.audio import load_audio
from indextts.features.builtin import BuiltinBackend
from indextts.features.semantic_codec import HalvingCodec
from indextts.models.checkpoint import TEXT_TABLES, read_weights
from indextts.speech.export.model_folder import export
from indextts.speech.synthesis.acoustic import AcousticModel
from indextts.speech.synthesis.synthesize import synthesize
from indextts.system.log_lines import log_to_stdout
from indextts.text.bases import load_tokenizer, tokenizer_in
from indextts.text.extend import extend_file, reserve_file
from indextts.text.special_tokens import LANGUAGES, SPECIAL_TOKENS
from tests.acoustic_files import STYLE_DIM, write_files_of_2_5
from tests.conftest import REPOSITORY
from tests.tiny_run import TYPED, describe_restore, flag, make_tiny_run
from tools import build_gpt_prompt_pairs
from trainers.train_gpt_v2 import main

pytestmark = pytest.mark.long

NUM_CLIPS = 12
AMHARIC_ROW = 75
VOICE = min(path for path in (REPOSITORY / "demo/audio").rglob("*") if path.is_file())


class Project:
    """Published files of 2.5, recordings of two speakers, features, pairs and an extended tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.published = write_files_of_2_5(folder / "published")
        self.base_tokenizer = self.published / "multilingual_zh_ja_yue_char_del.tiktoken"
        self.tokenizer, self.features = folder / "am.tiktoken", folder / "features"
        self.sentences = (REPOSITORY / "demo/sentences.txt").read_text(encoding="utf-8").split("\n")
        size = load_tokenizer(self.base_tokenizer).size + 120
        extend_file(self.base_tokenizer, self.sentences[:60], self.tokenizer, size)
        self.manifest = folder / "all.jsonl"
        self.manifest.write_text("".join(map(self._record, range(NUM_CLIPS))), encoding="utf-8")

    def _record(self, number: int) -> str:
        path = self.folder / f"{number}.wav"
        noise = np.random.default_rng(number).normal(0, 0.1, int((1.2 + number / 20) * 24_000))
        soundfile.write(path, noise.astype(np.float32), 24_000, subtype="FLOAT")
        record = {"id": f"u{number}", "audio": str(path), "text": self.sentences[number]}
        record |= {"speaker": f"s{number % 2}", "duration": 1.2 + number / 20}
        return json.dumps(record, ensure_ascii=False) + "\n"

    def preprocess_command(self, **changes: object) -> Preprocess:
        files = {
            "config": self.published / "config.yaml",
            "gpt_checkpoint": self.published / "gpt.pth",
            "speech_encoder": self.published / "w2v-bert-2.0",  # is in hf_cache/
            "semantic_codec": self.published / "codec.pth",
            "stats": self.published / "wav2vec2bert_stats.pt",
            "campplus": self.published / "campplus/campplus_cn_common.bin",  # likewise
        }
        fields = {"manifest": self.manifest, "output_dir": self.features, "backend": "indextts2"}
        fields |= {"device": "cpu", "val_ratio": 0.3, "val_speakers": 0, "latents": "float32"}
        return Preprocess(**(fields | files | changes))

    def flags(self, **changes: object) -> list[str]:
        fields = {
            "train_manifest": self.folder / "train_pairs.jsonl",
            "val_manifest": self.folder / "val_pairs.jsonl",
            "tokenizer": self.tokenizer,
            "config": self.published / "config.yaml",
            "base_checkpoint": self.published / "gpt.pth",
            "output_dir": self.folder / "run",
            "max_steps": 4,
            **TYPED,
            "learning_rate": 0.01,
            "warmup_steps": 0,
            "save_interval": 2,
            "allow_cpu": "",
            **changes,
        }
        return [
            flag(name, each)
            for name, value in fields.items()
            for each in (value if isinstance(value, list) else [value])
        ]

    def train(self, **changes: object) -> int:
        log_to_stdout()
        return main(self.flags(**changes))

    def speak(self, model: Path, output: Path) -> bytes:
        """Speak with a checkpoint or a model folder and return the samples."""
        command = Synthesize(
            checkpoint=model,
            models=self.published,
            voice=str(VOICE),
            text=["ሰላም"],
            output=output,
            device="cpu",
            solver_steps=2,
            num_beams=1,
            max_codes=20,
            top_k=0,
            top_p=1,
        )
        list(synthesize(command))
        return soundfile.read(output)[0].tobytes()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("base25"))
    result = preprocess(project.preprocess_command())
    assert (result.num_encoded, result.rejected) == (NUM_CLIPS, [])
    for part in ("train", "val"):
        flags = [f"--manifest={project.features / part}_manifest.jsonl", f"--tokenizer={project.tokenizer}"]
        output = f"--output={project.folder / part}_pairs.jsonl"
        assert build_gpt_prompt_pairs.main([*flags, output, "--min-code-len=1"]) == 0
    assert project.train() == 0
    return project


def weights(path: Path) -> dict[str, torch.Tensor]:
    content = torch.load(path, weights_only=True)
    found: dict[str, torch.Tensor] = content.get("model", content)
    return found


def test_features_are_25_codes_a_second_the_style_of_the_voice_and_the_emotion(project: Project):
    [path] = project.features.glob("features/*.json")
    store = FeatureStore.open(path)
    assert store.info.base == "2.5"
    assert store.info.condition_shape == (1, STYLE_DIM)
    acoustic = AcousticModel.load(project.published, torch.device("cpu"))
    assert isinstance(acoustic.backend.codec, HalvingCodec)
    lines = (project.features / "train_manifest.jsonl").read_text(encoding="utf-8").splitlines()
    for line in map(json.loads, lines[:2]):
        key, audio = line["features_key"], project.features / line["audio"]
        duration_s = soundfile.info(audio).duration
        assert len(store.codes(key)) == -(-int((duration_s - 0.015) * 50 + 1e-6) // 2) == line["code_len"]
        voice = acoustic.voice_of(load_audio(audio, 22_050))
        np.testing.assert_allclose(store.condition(key), voice.style.numpy(), rtol=1e-3, atol=1e-4)


def test_old_rows_stay_and_the_language_row_starts_as_that_of_arabic(project: Project):
    log = (project.folder / "run/train.log").read_text(encoding="utf-8")
    base, trained = weights(project.published / "gpt.pth"), weights(project.folder / "run/latest.pth")
    size = len(base["text_embedding.weight"]) - 1
    for table in ("text_embedding.weight", "text_head.weight", "text_head.bias"):
        assert torch.equal(trained[table][:size], base[table][:size]), table
    assert not torch.equal(trained["spk_emb_proj.weight"], base["spk_emb_proj.weight"])
    rows, before = trained["lang_embedding.weight"], base["lang_embedding.weight"]
    others = [row for row in range(len(rows)) if row != 75]
    assert torch.equal(rows[others], before[others])
    distance = (rows[75] - before[13]).norm()  # four steps of AdamW from the row of Arabic
    assert 0 < distance < 0.05 * len(rows[75]) < (rows[75] - before[75]).norm()
    norm = re.search(r"language row of am \(75\) starts as a copy of ar: norm ([\d.]+)", log)
    assert float(norm[1]) == pytest.approx(before[13].norm().item(), abs=0.01)


def test_a_frozen_body_stays_while_new_rows_and_the_row_of_a_new_language_learn(project: Project):
    frozen = project.folder / "frozen"
    start = project.folder / "run/model_step2.pth"
    rates = {"new_row_lr_scale": 10, "freeze_body_steps": 4}
    assert project.train(output_dir=frozen, resume=start, **rates) == 0
    before, found = weights(start), weights(frozen / "latest.pth")
    changed = {name for name, tensor in found.items() if not torch.equal(tensor, before[name])}
    new = {"text_embedding.weight", "text_head.weight", "text_head.bias", "lang_embedding.weight"}
    assert changed == new
    rows = (found["lang_embedding.weight"] != before["lang_embedding.weight"]).any(dim=1)
    assert rows.nonzero().flatten().tolist() == [75]
    log = (frozen / "train.log").read_text(encoding="utf-8")
    assert re.search("new_row_lr_scale: 1 -> 10:", log)
    assert re.search("freeze_body_steps: 0 -> 4:", log)


def test_replay_moves_no_row_of_its_language_while_the_body_is_frozen(project: Project):
    """The same pairs stand for English, which the base speaks."""
    pairs = project.folder / "train_pairs.jsonl"
    shares = [f"{pairs}@0.5", f"{pairs}@en@0.5"]
    moved, english = [], LANGUAGES.index("en")
    for name, frozen in (("frozen", 4), ("free", 0)):
        output = project.folder / f"replay_{name}"
        rates = {"new_row_lr_scale": 10, "freeze_body_steps": frozen}
        assert project.train(output_dir=output, train_manifest=shares, **rates) == 0
        first, last = weights(output / "model_step2.pth"), weights(output / "latest.pth")
        size = len(weights(project.published / "gpt.pth")["text_embedding.weight"]) - 1
        for table, tensor in last.items():
            rows = (tensor != first[table]).reshape(len(tensor), -1).any(dim=1).nonzero().flatten().tolist()
            if not frozen:
                break
            if table == "lang_embedding.weight":
                assert rows == [AMHARIC_ROW]
            elif table in TEXT_TABLES:
                assert rows
                assert min(rows) >= size
            else:
                assert not rows, table
        step = (last["lang_embedding.weight"] - first["lang_embedding.weight"]).abs().amax(dim=1)
        moved.append((step[english].item(), step[AMHARIC_ROW].item()))
    assert moved[0][0] == 0
    assert 0 < moved[1][0] <= moved[1][1] / 5  # with the rate of the body, not ten times that


def test_the_row_of_a_replayed_language_starts_as_that_of_the_new_one(project: Project):
    pairs = project.folder / "train_pairs.jsonl"
    output = project.folder / "replay_sw"
    assert project.train(output_dir=output, train_manifest=[f"{pairs}@0.5", f"{pairs}@sw@0.5"]) == 0
    swahili = LANGUAGES.index("sw")
    log = (output / "train.log").read_text(encoding="utf-8")
    assert f"language row of sw ({swahili}) starts as a copy of ar" in log
    base, rows = (
        weights(path)["lang_embedding.weight"]
        for path in (project.published / "gpt.pth", output / "latest.pth")
    )
    distance = (rows[swahili] - base[LANGUAGES.index("ar")]).norm()
    assert 0 < distance < (rows[swahili] - base[swahili]).norm() / 5
    # an added language gets its row at the resume, and the trained rows stay
    added = [f"{pairs}@0.5", f"{pairs}@sw@0.25", f"{pairs}@so@0.25"]
    argv = project.flags(output_dir=output, resume="auto", train_manifest=added, max_steps=6)
    assert "  Language rows: so: copied from the row of ar" in describe_restore(parse(Train, argv))
    assert project.train(output_dir=output, resume="auto", train_manifest=added, max_steps=6) == 0
    log = (output / "train.log").read_text(encoding="utf-8").split("Loading checkpoint")[1]
    assert "[Warn] Language rows: so: copied from the row of ar\n" in log
    assert f"language row of so ({LANGUAGES.index('so')}) starts as a copy of ar" in log
    assert "language row of sw" not in log
    assert "language row of am" not in log
    # a language that comes back keeps what it has learned
    for step, files in ((7, [f"{pairs}@0.5", f"{pairs}@so@0.5"]), (8, added)):
        assert project.train(output_dir=output, resume="auto", train_manifest=files, max_steps=step) == 0
    log = (output / "train.log").read_text(encoding="utf-8")
    assert log.count("language row of sw") == log.count("language row of so") == 1


def test_features_checkpoints_and_weights_of_the_other_base_are_refused_with_status_3(
    project: Project, tmp_path: Path
):
    other = make_tiny_run(tmp_path / "2.0")
    features = {
        "train_manifest": other.folder / "train_pairs.jsonl",
        "val_manifest": other.folder / "val_pairs.jsonl",
    }
    assert project.train(output_dir=tmp_path / "a", **features) == RESUME_REFUSED
    base = other.folder / "base/gpt.pth"
    assert project.train(output_dir=tmp_path / "b", base_checkpoint=base) == RESUME_REFUSED
    assert other.train(base_checkpoint=project.published / "gpt.pth") == RESUME_REFUSED
    assert other.train(max_steps=2) == 0
    assert project.train(output_dir=other.output, resume="auto") == RESUME_REFUSED
    mixed = [
        ("2.0", "2.5", project.flags(output_dir=other.output, resume="auto")),
        ("2.5", "2.0", other.flags(output_dir=project.folder / "run", resume="auto")),
    ]
    for before, now, argv in mixed:  # the plan refuses before a start
        with pytest.raises(UserError, match=f"base is {before} in the checkpoint and {now}") as refusal:
            describe_restore(parse(Train, argv))
        assert refusal.value.exit_status == RESUME_REFUSED
    assert not (tmp_path / "a/latest.pth").exists()


def test_an_export_has_the_official_order_of_tokens_and_speaks_as_the_checkpoint(project: Project, tmp_path):
    checkpoint = project.folder / "run/latest.pth"
    command = ExportModel(
        checkpoint=checkpoint, config=project.published / "config.yaml", output_dir=tmp_path / "model"
    )
    folder = export(command).parent
    official = tokenizer_in(folder, BASES["2.5"])
    own = load_tokenizer(project.tokenizer)
    assert official.pieces[-len(SPECIAL_TOKENS) :] == SPECIAL_TOKENS
    assert official.options == own.options
    trained, found = weights(checkpoint), read_weights(folder / "gpt.pth")
    assert trained.keys() == found.keys()
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}
    for sentence in project.sentences[:20]:
        rows = (own.encode(sentence), official.encode(sentence))
        for table in ("text_embedding.weight", "text_head.weight", "text_head.bias"):
            assert torch.equal(trained[table][rows[0]], found[table][rows[1]])
    assert project.speak(checkpoint, tmp_path / "a.wav") == project.speak(folder, tmp_path / "b.wav")
    program = [sys.executable, REPOSITORY / "tools/export_gpt.py", f"--check={folder}"]
    check = subprocess.run(program, capture_output=True, text=True)
    assert check.stdout.count("qwen0.6bemo4-merge") == 1  # the only one that the published files lack
    assert "codec.pth" not in check.stdout
    (folder / "codec.pth").unlink()
    assert "codec.pth" in subprocess.run(program, capture_output=True, text=True).stdout


def test_reserved_pieces_train_and_export_without_another_shape(project: Project, tmp_path: Path):
    tokenizer = tmp_path / "r.tiktoken"
    own = reserve_file(project.base_tokenizer, project.sentences[:60], tokenizer).extended
    output = tmp_path / "run"
    assert project.train(tokenizer=tokenizer, output_dir=output, max_steps=2) == 0
    base, trained = weights(project.published / "gpt.pth"), weights(output / "latest.pth")
    first = own.appended_ids(own.size).start
    for table in ("text_embedding.weight", "text_head.weight", "text_head.bias"):
        assert trained[table].shape == base[table].shape
        assert torch.equal(trained[table][:first], base[table][:first]), table
        assert not torch.equal(trained[table][first:-1], base[table][first:-1]), table
    command = ExportModel(
        checkpoint=output / "latest.pth",
        config=project.published / "config.yaml",
        output_dir=tmp_path / "model",
    )
    folder = export(command).parent
    published = project.base_tokenizer.read_bytes()
    assert (folder / project.base_tokenizer.name).read_bytes() == published
    assert read_weights(folder / "gpt.pth").keys() == base.keys()
    program = "from spoken_text import spoken; print(spoken('ሰላም ለዓለም'))"
    spoken = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    base_tokenizer = load_tokenizer(project.base_tokenizer)
    ids = base_tokenizer.encoding.encode(base_tokenizer.tag + spoken.stdout.strip(), allowed_special="all")
    assert ids == own.encode("ሰላም ለዓለም")
    assert project.speak(folder, tmp_path / "a.wav") == project.speak(
        output / "latest.pth", tmp_path / "b.wav"
    )


def test_preprocessing_refuses_the_codec_of_2_0_and_built_in_features_of_2_0(project: Project, tmp_path):
    from tests.acoustic_files import write_acoustic_files

    codec = write_acoustic_files(tmp_path / "2.0") / "semantic_codec/model.safetensors"
    with pytest.raises(UserError, match=r"model\.safetensors: not the codec of IndexTTS-2\.5") as refusal:
        preprocess(project.preprocess_command(output_dir=tmp_path / "a", semantic_codec=codec))
    assert refusal.value.exit_status == RESUME_REFUSED
    path = tmp_path / "builtin.npz"
    with pytest.raises(UserError, match=r"builtin\.npz: .*IndexTTS-2\.5") as refusal:
        require_rate_of(BASES["2.5"], BuiltinBackend(16, features_per_code=1), path)
    assert refusal.value.exit_status == RESUME_REFUSED


def test_a_clip_shorter_than_a_second_is_rejected(project: Project, tmp_path: Path):
    short = tmp_path / "short.wav"
    soundfile.write(short, np.random.default_rng(0).normal(0, 0.1, 19_000).astype(np.float32), 24_000)
    shutil.copy(project.manifest, tmp_path / "all.jsonl")
    record = {"id": "short", "audio": str(short), "text": "ሰላም", "speaker": "s0", "duration": 19_000 / 24_000}
    with (tmp_path / "all.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    command = project.preprocess_command(manifest=tmp_path / "all.jsonl", output_dir=tmp_path / "out")
    result = preprocess(command)
    assert [(each.id, each.code) for each in result.rejected] == [("short", "too_short")]
