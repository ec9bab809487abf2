import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile
import torch

from indextts.commands.sampling_options import Sampling
from indextts.commands.speech import ExportModel, PublishModel, Synthesize
from indextts.errors import UserError
from indextts.features import builtin
from indextts.models.checkpoint import TEXT_TABLES, read_weights
from indextts.projects.project import Project
from indextts.runs.owner import run_lock
from indextts.speech.export.model_folder import export
from indextts.speech.publishing.publish import publish
from indextts.speech.synthesis.s2mel import SolverSettings
from indextts.speech.synthesis.script import require_voices, voices_in
from indextts.speech.synthesis.segments import drop_invalid_codes
from indextts.speech.synthesis.synthesize import SEED_STRIDE, load_renderer, resolve_sampling, synthesize
from indextts.speech.synthesis.text_to_speech import Emotion, TextToSpeech, parse_emotion
from indextts.speech.synthesis.trained_model import load_trained
from indextts.webui.listen.saved_models import adapter_meta
from tests.acoustic_files import write_acoustic_files
from tests.hub_server import TOKEN, Hub, use_hub
from tests.speaking_run import NUM_CODES, clips_of, trainer_flags
from tests.speech_server import speech_server
from tests.tiny_run import BASE_SIZE, BASE_TOKENIZER
from tools.synthesize import main
from trainers.train_gpt_v2 import main as train

CPU = torch.device("cpu")
SHORT = {"max_codes": 40}

TEXTS = ("ሰላም ለዓለም", "እሺ", "ጥሩ ቀን")


@pytest.fixture(scope="module")
def tts(tuned: Project) -> TextToSpeech:
    trained = load_trained(tuned.run_dir / "latest.pth", CPU)
    return TextToSpeech(trained, load_renderer(trained, None, Path("absent"), CPU, SolverSettings()))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny folder of the published form, with GPT and acoustic model."""
    folder = write_acoustic_files(tmp_path_factory.mktemp("published"))
    shutil.copy(BASE_TOKENIZER, folder / "bpe.model")
    return folder


def command(tuned: Project, **changes: object) -> Synthesize:
    fields: dict[str, object] = {
        "checkpoint": tuned.run_dir / "latest.pth",
        "voice": str(clips_of(tuned)[0].audio),
        **SHORT,
    }
    if not changes.keys() & {"text", "text_file"}:
        fields["text"] = ["ሰላም።"]
    return Synthesize(**{**fields, **changes})  # type: ignore[arg-type]


def spoken(tuned: Project, output: Path, **changes: object) -> np.ndarray:
    list(synthesize(command(tuned, output=output, **changes)))
    return soundfile.read(output, dtype="int16")[0]


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "spoken.jsonl").read_text("utf-8").splitlines()]


def test_each_text_becomes_a_file_with_its_normalised_text(
    tuned: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    texts = tmp_path / "texts.txt"
    texts.write_text("5 ሰዎች መጡ።\n\nሰላም ለዓለም።\n", encoding="utf-8")
    flags = [
        f"--checkpoint={tuned.run_dir / 'latest.pth'}",
        f"--text-file={texts}",
        f"--voice={clips_of(tuned)[0].id}",
    ]
    assert main([*flags, f"--output={tmp_path / 'out'}", "--max-codes=40"]) == 0
    records = lines(tmp_path / "out")
    assert [record["spoken"] for record in records] == ["አምስት ሰዎች መጡ.", "ሰላም ለዓለም."]
    shown = capsys.readouterr().out
    assert "5 ሰዎች መጡ።\n" in shown
    assert "አምስት ሰዎች መጡ.\n" in shown
    for record in records:
        sound = soundfile.info(tmp_path / "out" / record["file"])
        assert (sound.samplerate, sound.channels, sound.subtype) == (24_000, 1, "PCM_16")
        assert sound.frames == 480 * record["num_codes"] > 0
        assert (record["checkpoint"], record["step"], record["backend"]) == ("latest.pth", 2, "builtin")
    assert not list((tmp_path / "out").glob(".tmp-*"))


def test_the_sound_depends_on_seed_and_voice(tuned: Project, tmp_path: Path):
    first = spoken(tuned, tmp_path / "a.wav", seed=3)
    np.testing.assert_array_equal(spoken(tuned, tmp_path / "b.wav", seed=3), first)
    other_speaker = next(clip for clip in clips_of(tuned) if clip.speaker != clips_of(tuned)[0].speaker)
    for changes in ({"seed": 4}, {"seed": 3, "voice": str(other_speaker.audio)}):
        assert not np.array_equal(spoken(tuned, tmp_path / "c.wav", **changes), first)


def test_the_best_candidate_is_kept_and_the_record_says_why(tuned: Project, tmp_path: Path):
    sampled = {"temperature": 2.0, "text": ["ሰላም", "እሺ"]}
    list(synthesize(command(tuned, output=tmp_path / "out", candidates=3, **sampled)))
    for number, record in enumerate(lines(tmp_path / "out"), 1):
        found = record["candidates"]
        assert [one["seed"] for one in found] == [0, SEED_STRIDE, 2 * SEED_STRIDE]
        [best] = [one for one in found if one["is_chosen"]]
        assert best["fault"] == min(one["fault"] for one in found)
        assert best["seconds"] == record["seconds"]
        alone = tmp_path / f"alone{number}"
        list(synthesize(command(tuned, output=alone, seed=best["seed"], **sampled)))
        kept, single = (soundfile.read(each / f"00{number}.wav")[0] for each in (tmp_path / "out", alone))
        np.testing.assert_allclose(kept, single, atol=1e-3)
    with pytest.raises(UserError, match="--candidates"):
        list(synthesize(command(tuned, candidates=2, stream=True)))


def test_subtitles_are_spoken_at_their_times_and_cues_that_are_too_long_are_named(
    tuned: Project, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    subtitles = tmp_path / "talk.srt"
    times = [
        ("00:00:01,000", "00:00:09,000"),
        ("00:00:10,000", "00:00:10,010"),
        ("00:00:10,020", "00:00:20,000"),
    ]
    blocks = [
        f"{n}\n{a} --> {b}\n<i>{text}</i>\n"
        for n, ((a, b), text) in enumerate(zip(times, TEXTS, strict=True))
    ]
    blocks.append("4\n00:00:21,000 --> 00:00:22,000\n♪ ላላ ♪\n")
    subtitles.write_text("\n".join(blocks), encoding="utf-8")
    printed = list(synthesize(command(tuned, text=[], text_file=subtitles, output=tmp_path / "out")))
    assert re.search(r"talk\.srt:14: not spoken", caplog.text)
    whole, rate = soundfile.read(tmp_path / "out/talk.wav")
    parts = [soundfile.read(tmp_path / f"out/00{number}.wav")[0] for number in (1, 2, 3)]
    assert not whole[:rate].any()
    starts = [rate, 10 * rate, 10 * rate + len(parts[1])]  # the last one waits for the one before
    for start, part in zip(starts, parts, strict=True):
        np.testing.assert_array_equal(whole[start : start + len(part)], part)
    assert len(whole) == starts[-1] + len(parts[-1])
    assert [line.split(":")[0] for line in printed[-1:]] == ["  10.00 to 10.01 s"]
    with pytest.raises(UserError, match="--output"):
        list(synthesize(command(tuned, text=[], text_file=subtitles, output=tmp_path / "one.wav")))


def test_a_dialogue_is_spoken_in_its_voices_and_joined_with_a_chapter_at_each_heading(
    tuned: Project, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    first, other = clips_of(tuned)[0].audio, clips_of(tuned)[-1].audio
    (tmp_path / "voices").mkdir()
    voice = Path(shutil.copy(other, tmp_path / f"voices/abebe{other.suffix}"))
    (tmp_path / "book.txt").write_text("# እሺ\nabebe፦ ሰላም\nnote: ሰላም\n# abebe: ጥሩ\n", encoding="utf-8")
    given = {"text": [], "text_file": tmp_path / "book.txt", "voices": [voice.parent], "joined": True}
    list(synthesize(command(tuned, output=tmp_path / "out", **given)))
    spoken_lines = [(line["text"], line["voice"]) for line in lines(tmp_path / "out")]
    named = [("እሺ", first.stem), ("ሰላም", "abebe"), ("note: ሰላም", first.stem), ("ጥሩ", "abebe")]
    assert spoken_lines == named
    assert "'note'" in caplog.text
    assert voices_in([Path(f"almaz={other}"), voice.parent]) == {"almaz": other, "abebe": voice}
    with pytest.raises(UserError, match="--voices almaz=absent"):
        require_voices([Path("almaz=absent.wav")])
    alone = spoken(tuned, tmp_path / "alone.wav", text=["ሰላም"], voice=str(voice))
    np.testing.assert_allclose(soundfile.read(tmp_path / "out/002.wav", dtype="int16")[0], alone, atol=2)
    with av.open(tmp_path / "out/book.m4b") as book:
        chapters = [
            (each["metadata"]["title"], each["start"] * each["time_base"]) for each in book.chapters()
        ]
        duration_s = book.duration / av.time_base
    seconds = [soundfile.info(tmp_path / f"out/00{number}.wav").duration for number in (1, 2, 3, 4)]
    assert [title for title, _ in chapters] == ["እሺ", "ጥሩ"]
    assert chapters[1][1] == pytest.approx(sum(seconds[:3]) + 1.5, abs=0.01)
    assert duration_s == pytest.approx(sum(seconds) + 1.5, abs=0.1)


def test_sampling_settings_that_are_not_given_are_those_of_the_backend(tuned: Project):
    settings = resolve_sampling(command(tuned, num_beams=3), "builtin")
    assert (settings.num_beams, settings.repetition_penalty, settings.positions) == (3, 1.0, "training")
    assert resolve_sampling(command(tuned), "indextts2") == Sampling(**SHORT)  # type: ignore[arg-type]


def test_a_long_text_is_split_at_its_sentences_and_joined_with_silence(tts: TextToSpeech, tuned: Project):
    text = "ሰላም ለዓለም ሁሉ ይሁን ብለው ተናገሩ። " * 8
    line = tts.line(text, tts.read_voice(clips_of(tuned)[0].audio), seed=0)
    [(_, result)] = tts.speak([line], Sampling(num_beams=1, max_codes=30))
    assert len(result.segments) > 1
    assert result.text == tts.trained.tokenizer.normalize(text)
    lengths = [len(segment.codes) * 480 for segment in result.segments if len(segment.codes)]
    assert len(result.samples) == sum(lengths) + (len(lengths) - 1) * 4800
    np.testing.assert_array_equal(result.samples[lengths[0] : lengths[0] + 4800], 0)


def test_many_texts_sound_as_each_does_alone_and_come_longest_first(tts: TextToSpeech, tuned: Project):
    voices = [tts.read_voice(clips_of(tuned)[number].audio) for number in (0, 1)]
    texts = ["ሰላም", "ሰላም ለዓለም ሁሉ ይሁን", "ደህና ነህ", "ሰላም ለዓለም ሁሉ ይሁን ብለው ተናገሩ። " * 8, "እሺ"]
    sampling = Sampling(num_beams=1, repetition_penalty=1, max_codes=30, temperature=2)
    lines = [tts.line(text, voices[n % 2], seed=10 * n) for n, text in enumerate(texts)]
    spoken = list(tts.speak(lines, sampling))
    assert sorted(index for index, _ in spoken) == [0, 1, 2, 3, 4]
    assert next(index for index, _ in spoken) == 3
    for index, speech in spoken:
        [(_, alone)] = tts.speak([lines[index]], sampling)
        assert speech.text == alone.text
        np.testing.assert_allclose(speech.samples, alone.samples, rtol=0, atol=1e-5)
    assert len({len(speech.samples) for _, speech in spoken}) > 3


def test_codes_outside_the_codebook_are_dropped(
    tts: TextToSpeech, tuned: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    codes = torch.tensor([1, NUM_CODES, 2, NUM_CODES + 1, -1])
    assert drop_invalid_codes(codes, NUM_CODES).tolist() == [1, 2]
    bias = tts.trained.gpt.mel_head.bias.clone()
    bias[tts.trained.gpt.config.start_mel_token] += 1e4  # the model generates only its start token
    monkeypatch.setattr(tts.trained.gpt.mel_head, "bias", torch.nn.Parameter(bias, requires_grad=False))
    settings = Sampling(num_beams=1, repetition_penalty=1, max_codes=5)
    line = tts.line("ሰላም", tts.read_voice(clips_of(tuned)[0].audio), seed=0)
    [(_, result)] = tts.speak([line], settings)
    assert result.num_codes == len(result.samples) == 0
    assert "5 of 5 codes" in caplog.text


def test_half_precision_follows_float32_and_float16_needs_a_gpu(tuned: Project, tmp_path: Path):
    first = spoken(tuned, tmp_path / "a.wav", seed=3, precision="bfloat16")
    assert len(first) > 0
    with pytest.raises(UserError, match="--precision float16"):
        list(synthesize(command(tuned, precision="float16", output=tmp_path / "b.wav")))


def test_an_emotion_is_taken_from_a_second_recording(tts: TextToSpeech, tuned: Project):
    first, second = clips_of(tuned)[0].audio, clips_of(tuned)[-1].audio
    own = tts.read_voice(first)
    other = tts.read_voice(second)
    half = tts.read_voice(first, Emotion(second, alpha=0.5))
    torch.testing.assert_close(half.emo_vec, (own.emo_vec + other.emo_vec) / 2)
    torch.testing.assert_close(half.condition, own.condition, rtol=0, atol=0)
    with pytest.raises(UserError, match=r"^--emotion .*--emotion-voice"):
        tts.read_voice(first, Emotion(weights=parse_emotion("happy=0.5")))


def test_the_published_model_speaks_with_emotion_weights(tuned: Project, published: Path, tmp_path: Path):
    settings = {"checkpoint": published, "models": published, "solver_steps": 2, "num_beams": 1}
    plain = spoken(tuned, tmp_path / "a.wav", **settings)
    happy = spoken(tuned, tmp_path / "b.wav", emotion="happy=0.6,calm=0.2", **settings)
    assert soundfile.info(tmp_path / "a.wav").samplerate == 22_050
    assert len(plain) > 0
    assert plain.shape != happy.shape or not np.array_equal(plain, happy)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")  # of huggingface_hub
def test_an_adapter_speaks_as_the_merged_export_and_without_strength_as_the_base(
    tuned: Project, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
):
    run = tmp_path / "run"
    settings = {"max_steps": 4, "warmup_steps": 0, "lora_rank": 2, "learning_rate": 0.05, "lora_alpha": 99}
    assert train(trainer_flags(tuned, output_dir=run, **settings)) == 0
    fields = {"checkpoint": run / "latest.pth", "config": tuned.config}
    merged = export(ExportModel(output_dir=tmp_path / "merged", **fields)).parent
    adapter = export(ExportModel(output_dir=tmp_path / "adapter", format="adapter", **fields)).parent
    assert adapter_meta(adapter / "adapter.safetensors").settings["lora_rank"] == 2  # the page's menu
    base, weights = read_weights(tuned.base_checkpoint), read_weights(merged / "gpt.pth")
    for name in TEXT_TABLES:
        base[name] = torch.cat([base[name][:BASE_SIZE], weights[name][BASE_SIZE:]])
    untrained = shutil.copytree(merged, tmp_path / "base")
    torch.save(base, untrained / "gpt.pth")
    folder = {"models": tuned.base_checkpoint.parent}
    heard = [spoken(tuned, tmp_path / "a.wav", checkpoint=path, **folder) for path in (merged, untrained)]
    at = [
        spoken(tuned, tmp_path / "b.wav", checkpoint=adapter, adapter_strength=strength, **folder)
        for strength in (1, 0)
    ]
    use_hub(monkeypatch, hub.url, tmp_path, TOKEN)
    list(publish(PublishModel(model_folder=adapter, repository="someone/adapter")))
    heard.append(heard[0])
    at.append(spoken(tuned, tmp_path / "b.wav", checkpoint=Path("someone/adapter"), **folder))
    for one, other in zip(heard, at, strict=True):
        np.testing.assert_array_equal(one, other)
    voice = clips_of(tuned)[0].audio
    flags = {"checkpoint": adapter, "voices": voice, "port": 0, "max-codes": 40, "device": "cpu", **folder}
    with speech_server(flags) as server:
        served = np.frombuffer(server.say("ሰላም።", voice=voice.stem), "<i2")
    np.testing.assert_allclose(served, heard[0], rtol=0, atol=2)
    assert heard[0].shape != heard[1].shape or not np.array_equal(*heard[:2])


def test_an_export_speaks_like_its_checkpoint_and_not_with_another_tokenizer(tuned: Project, tmp_path: Path):
    config, folder = tuned.config, tmp_path / "export"
    export(ExportModel(checkpoint=tuned.run_dir / "latest.pth", config=config, output_dir=folder))
    exported = spoken(tuned, tmp_path / "a.wav", checkpoint=folder, features=tuned.preprocessed / "features")
    np.testing.assert_array_equal(exported, spoken(tuned, tmp_path / "b.wav"))
    np.testing.assert_array_equal(exported, spoken(tuned, tmp_path / "c.wav", checkpoint=tuned.run_dir))
    shutil.copy(BASE_TOKENIZER, folder / "bpe.model")
    with pytest.raises(UserError, match=r"gpt\.pth: .*720 pieces, .*bpe\.model .*400; "):
        load_trained(folder, CPU)


def test_a_checkpoint_whose_tokenizer_was_replaced_is_refused(tuned: Project, tmp_path: Path):
    content = torch.load(tuned.run_dir / "latest.pth", weights_only=True)
    content["tokenizer"]["model"] = BASE_TOKENIZER.read_bytes()
    torch.save(content, tmp_path / "best.pth")
    with pytest.raises(UserError, match=r"best\.pth: .*tokenizer"):
        load_trained(tmp_path / "best.pth", CPU)


def write_sound(path: Path, samples: np.ndarray) -> str:
    soundfile.write(path, samples, 16_000)
    return str(path)


def test_recordings_without_a_voice_are_refused(tuned: Project, tmp_path: Path):
    random = np.random.default_rng(0)
    endless = tmp_path / "endless.flac"
    soundfile.write(endless, np.zeros(3600 * 8000, np.int16), 8000)
    (tmp_path / "text.wav").write_text("no sound")
    cases = {
        write_sound(tmp_path / "noise.wav", random.normal(0, 0.1, 64_000)): r"noise\.wav: .*\b15 s",
        write_sound(tmp_path / "silence.wav", np.zeros(64_000)): r"silence\.wav: .*\b15 s .*-50 dB",
        write_sound(tmp_path / "click.wav", random.normal(0, 0.1, 8_000)): r"click\.wav: .*\b0\.5 s",
        str(endless): r"endless\.flac: .*3600\.0 s",
        str(tmp_path / "text.wav"): r"text\.wav: ",
        "nobody": r"--voice nobody: .*train_manifest\.jsonl",
    }
    for voice, problem in cases.items():
        with pytest.raises(UserError, match=problem):
            list(synthesize(command(tuned, voice=voice, output=tmp_path / "out.wav")))
    assert not (tmp_path / "out.wav").exists()


def test_unusable_texts_are_refused_before_the_first_synthesis(tuned: Project, tmp_path: Path):
    (tmp_path / "latin1.txt").write_bytes("caf\u00e9".encode("latin-1"))
    cases: list[tuple[dict[str, object], str]] = [
        ({"text": []}, "--text, .*--text-file"),
        ({"text": ["  "]}, "--text, .*--text-file"),
        ({"text": ["ሰላም", "።?!"]}, re.escape("'።?!'")),
        ({"text": ["ሰላም", "ሰላም " * 6000]}, "24,000 .*20,000"),
        ({"text": ["ሰላም"] * 1001}, "1001 .*1000"),
        ({"text_file": tmp_path / "absent.txt"}, r"--text-file .*absent\.txt: .*No such file"),
        ({"text_file": tmp_path / "latin1.txt"}, r"--text-file .*latin1\.txt: .*UTF-8"),
        ({"text": ["ሰላም", "ሰላም"], "output": tmp_path / "one.wav"}, r"--output .*one\.wav: 2 "),
        ({"voices": [tmp_path / "absent"]}, "--voices .*absent"),
        ({"emotion": "joyful=1"}, "--emotion 'joyful=1'"),
        ({"emotion": "happy=0.8,calm=0.8"}, r"0\.8, .*0\.8"),
    ]
    for changes, problem in cases:
        with pytest.raises(UserError, match=problem) as caught:
            list(synthesize(command(tuned, **{"output": tmp_path / "out", **changes})))
        assert "\n" not in str(caught.value)
        assert caught.value.exit_status == 2
    assert not (tmp_path / "out").exists()


def test_missing_files_and_files_of_another_model_are_named(tuned: Project, published: Path, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    moved = torch.load(tuned.run_dir / "latest.pth", weights_only=True)
    moved["manifests"] = {"train": [str(tmp_path / "gone/train_pairs.jsonl")]}
    torch.save(moved, tmp_path / "moved.pth")
    no_vocoder = tmp_path / "no_vocoder"
    shutil.copytree(published, no_vocoder)
    (no_vocoder / "bigvgan/bigvgan_generator.pt").unlink()
    of_published = {"checkpoint": published, "voice": str(clips_of(tuned)[0].audio)}
    cases: list[tuple[dict[str, object], str]] = [
        ({"checkpoint": tuned.base_checkpoint}, r"gpt\.pth: .*tokenizer"),
        ({"checkpoint": tuned.root / "absent.pth"}, r"absent\.pth: "),
        ({"checkpoint": tmp_path / "empty"}, r"empty: .*gpt\.pth, best\.pth or latest\.pth"),
        ({"checkpoint": tmp_path / "moved.pth"}, r"gone/train_pairs\.jsonl: .*moved\.pth .*--features"),
        ({"features": tmp_path / "gone"}, r"gone: .*latest\.pth .*--features"),
        ({"features": tmp_path / "empty", "models": published}, "width 16|64 codes"),
        ({**of_published, "models": no_vocoder}, r"bigvgan_generator\.pt .*nvidia/bigvgan"),
        ({**of_published, "models": tmp_path / "empty"}, r"empty/config\.yaml .*empty/s2mel\.pth "),
    ]
    for changes, problem in cases:
        with pytest.raises(UserError, match=problem):
            list(synthesize(command(tuned, output=tmp_path / "out.wav", **changes)))


def test_codes_regenerated_after_the_training_are_refused(
    tuned: Project, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    features = shutil.copytree(tuned.preprocessed / "features", tmp_path / "features")
    learned = builtin.load(features / "builtin.npz")
    replace(learned, num_codes=learned.num_codes - 1).save(features / "builtin.npz")
    with pytest.raises(UserError, match=r"builtin\.npz: .*latest\.pth .*--features"):
        list(synthesize(command(tuned, output=tmp_path / "a.wav", features=features)))
    elsewhere = torch.load(tuned.run_dir / "latest.pth", weights_only=True)
    [pairs] = [Path(shutil.copy(path, tmp_path)) for path in elsewhere["manifests"]["train"]]
    elsewhere["meta"]["manifests"][0]["path"] = str(pairs)
    torch.save(elsewhere, tmp_path / "moved.pth")
    folder = tmp_path / "export"
    export(ExportModel(checkpoint=tmp_path / "moved.pth", config=tuned.config, output_dir=folder))
    assert "builtin.npz" in caplog.text
    assert not (folder / "builtin.npz").exists()


def test_synthesis_runs_on_the_cpu_while_the_run_is_trained(
    tuned: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    caplog.set_level("INFO")
    with run_lock(tuned.run_dir):
        assert len(spoken(tuned, tmp_path / "a.wav")) > 0
    (tuned.run_dir / ".lock").write_text("")  # this process lives on
    assert str(tuned.run_dir) in caplog.text
    assert "--device auto" in caplog.text
