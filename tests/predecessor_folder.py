"""Small folder in the format of the predecessor, for tests that damage it."""

import json
import math
from pathlib import Path

import numpy as np
import soundfile

from tests.tiny_run import CONFIG

NUM_CODES = CONFIG.number_mel_codes - 2
NUM_LATENTS, MODEL_DIM = CONFIG.num_latents, CONFIG.model_dim

Row = dict[str, object]


def num_frames(duration_s: float) -> int:
    """Return the number of codes of a clip that the predecessor encodes alone, with half pairs of frames."""
    num_log_mel = 1 + (round(16_000 * duration_s) - 400) // 160
    return math.ceil(num_log_mel / 2)


def save_features(folder: Path, id: str, num_codes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = {
        "codes": rng.integers(0, NUM_CODES, num_codes).astype(np.int32),
        "condition": rng.normal(size=(NUM_LATENTS, MODEL_DIM)).astype(np.float32),
        "emo_vec": rng.normal(size=MODEL_DIM).astype(np.float32),
        "text_ids": np.arange(2, 6, dtype=np.int32),
    }
    for name, array in arrays.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        np.save(folder / name / f"{id}.npy", array)


def row_of(id: str, speaker: str, duration_s: float, num_codes: int, text: str) -> Row:
    return {
        "id": id,
        "audio_path": f"audio/{id}.wav",
        "text": text,
        "speaker": speaker,
        "language": "am",
        "duration": duration_s,
        "text_ids_path": f"text_ids/{id}.npy",
        "text_len": 4,
        "codes_path": f"codes/{id}.npy",
        "code_len": num_codes,
        "condition_path": f"condition/{id}.npy",
        "condition_len": NUM_LATENTS,
        "emo_vec_path": f"emo_vec/{id}.npy",
    }


def write_old_folder(
    folder: Path, speakers: str = "aaaaaaaabbbbbbbb", *, with_audio: bool = False
) -> list[Row]:
    """Write valid features of one clip per letter of `speakers`; every eighth is for validation."""
    rows = []
    for number, speaker in enumerate(speakers):
        id, duration_s = f"spk{ord(speaker) - 97:03d}_{number:06d}", 0.5 + 0.013 * number
        num_codes = num_frames(duration_s)
        save_features(folder, id, num_codes, seed=number)
        rows.append(row_of(id, speaker, duration_s, num_codes, f"ሰላም ለዓለም {number}"))
        if with_audio:
            (folder / "audio").mkdir(exist_ok=True)
            soundfile.write(folder / f"audio/{id}.wav", np.zeros(round(24_000 * duration_s)), 24_000)
    write_rows(folder, rows)
    (folder / "stats.json").write_text(json.dumps({"total": len(rows), "tokenizer": "old.model"}))
    return rows


def write_rows(folder: Path, rows: list[Row]) -> None:
    """Write both manifests; every eighth row is for validation."""
    for name, part in (
        ("train", [row for number, row in enumerate(rows) if number % 8]),
        ("val", rows[::8]),
    ):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in part]
        (folder / f"{name}_manifest.jsonl").write_text("".join(lines), encoding="utf-8")
