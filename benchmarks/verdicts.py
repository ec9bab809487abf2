"""The check's verdicts: planted noise against the SNR that is read, and recordings of a man with right texts.

    python -m benchmarks.verdicts --folder DIR --voices CC0_VOICES --human MANIFEST --before DIR --asr DIR

Clean speech (tests/planted_noise.py) is cut at its pauses and put together with pauses of digital silence;
noise is added. The check of both checkouts judges these clips, and the human set. A Whisper in CTranslate2's
format (faster-whisper) hears the planted clips: where its errors rise, noise costs.
"""

import json
import os
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import soundfile
from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, publish, table
from indextts.commands.normalizer_options import DEFAULT_OPTIONS, of_language
from indextts.commands.terminal import parse, run
from indextts.features import dnsmos
from indextts.features.audio import load_audio
from indextts.text.transcripts import edit_distance, scored
from tests.planted_noise import KINDS, LEVEL, RATE_HZ, clean_clips, noise_of

SHARES, SNRS, HEARD = (0.0, 0.2, 0.4), (0, 5, 10, 15, 20, 30), ("white", "pink", "babble")
Costs = dict[tuple[str, int], list[tuple[float, float]]]


class Verdicts(Benchmark):
    """Plant noise in clean speech, and check it and a set of a man."""

    program: ClassVar[str] = "benchmarks.verdicts"
    folder: Path = Field(description="Folder for the clips and the checks.")
    voices: Path = Field(description="Folder with metadata.tsv of recorded voices.")
    human: Path = Field(description="Manifest of an import of real recordings with right texts.")
    before: Path = Field(description="Checkout of the commit to compare with.")
    asr: Path = Field(description="Folder of a Whisper in CTranslate2's format.")


def plant(command: Verdicts) -> list[dict[str, Any]]:
    """Write the planted clips and their manifest, and return its lines with what was planted."""
    rng, lines, clips = np.random.default_rng(0), [], list(clean_clips(command.voices))
    for number, (language, text, spans) in enumerate(clips):
        others = [np.concatenate(each) for code, _, each in clips if code not in (language, "am")]
        for share in SHARES:
            gap = np.zeros(int(sum(map(len, spans)) * share / (1 - share) / len(spans)))
            speech = np.concatenate([part for span in spans for part in (span, gap)])
            speech *= LEVEL / np.concatenate(spans).std()
            for kind, snr_db in ((kind, snr_db) for kind in KINDS for snr_db in SNRS):
                id = f"{number}_{kind}_{round(100 * share)}_{snr_db}"
                noise = noise_of(kind, len(speech), others, rng) * 10 ** (-snr_db / 20)
                soundfile.write(command.folder / f"{id}.wav", speech + noise, RATE_HZ, "FLOAT")
                planted = {"kind": kind, "share": share, "snr_db": snr_db, "language": language}
                line = {"id": id, "audio": f"{id}.wav", "text": text, "speaker": id}
                lines.append({**line, **planted, "duration": len(speech) / RATE_HZ})
    (command.folder / "manifest.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return lines


def judged(checkout: Path, manifest: Path, folder: Path, quality: str) -> tuple[list[dict[str, Any]], float]:
    """Return the clips as the check of a checkout judges them, and its processor time."""
    argv = [sys.executable, "check_amharic_data.py", f"--train-manifest={manifest}", f"--report-dir={folder}"]
    before = os.times().children_user
    subprocess.run([*argv, f"--quality={quality}", "--num-workers=1"], cwd=checkout, capture_output=True)
    with (folder / "clips.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file], os.times().children_user - before


def costs_of(asr: Path, folder: Path, lines: Sequence[dict[str, Any]]) -> Costs:
    """Return letter errors of the Whisper, at most 100 % a clip, and DNSMOS BAK by kind of noise and SNR."""
    whisper = import_module("faster_whisper")  # an extra
    model, found = whisper.WhisperModel(str(asr), "cpu", compute_type="int8"), defaultdict(list)
    for line in lines:
        if line["language"] in ("en", "de") and line["share"] == SHARES[1] and line["kind"] in HEARD:
            options = of_language(DEFAULT_OPTIONS, line["language"])
            samples = load_audio(folder / line["audio"], RATE_HZ)
            parts, _ = model.transcribe(samples, language=line["language"], beam_size=1)
            text, heard = (scored(t, options) for t in (line["text"], " ".join(p.text for p in parts)))
            error = 100 * min(1.0, edit_distance(text, heard) / len(text))
            found[line["kind"], line["snr_db"]].append((error, dnsmos.rate(samples)[1]))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Verdicts, argv)
    command.folder.mkdir(parents=True, exist_ok=True)
    lines, planted, human, rows = plant(command), {}, {}, []
    sides = {"before": command.before, "after": REPOSITORY}
    for side, checkout in sides.items():
        folder = command.folder / side
        planted[side] = judged(checkout, command.folder / "manifest.jsonl", folder / "planted", "fast")
        human[side] = judged(checkout, command.human, folder / "human", "full")[0]
    for kind, percent in ((kind, round(100 * share)) for kind in KINDS for share in SHARES):
        rows.append([f"{kind}, {percent} %"])
        for snr_db, side in ((snr_db, side) for snr_db in SNRS[1:] for side in sides):
            clips = [c for c in planted[side][0] if c["id"].endswith(f"_{kind}_{percent}_{snr_db}")]
            found = [snr for c in clips if (snr := c["measures"]["snr_db"]) is not None]
            rows[-1].append(f"{statistics.median(found):.1f}")
    header = ["noise, pauses", *(f"{snr} dB {side}" for snr in SNRS[1:] for side in sides)]
    costs = costs_of(command.asr, command.folder, lines)
    bak = statistics.quantiles((clip["measures"]["bak"] for clip in human["after"]), n=20)
    counts = {side: Counter(c["verdict"] for c in human[side]) for side in sides}
    for side in sides:
        counts[side].update(flag["reason"] for clip in human[side] for flag in clip["flags"])
    publish(
        command,
        "Verdicts of the check",
        [
            f"Processor time of the check, after / before: {planted['after'][1] / planted['before'][1]:.2f}.",
            *("", "SNR that is read, median in dB:", "", *table(header, rows)),
            *("", "Errors of a Whisper (base) over the planted SNR, mean % of letters, and DNSMOS BAK:", ""),
            *table(
                ["noise", *(f"{snr} dB" for snr in SNRS)],
                [[k, *("{:.0f}, {:.1f}".format(*np.mean(costs[k, s], 0)) for s in SNRS)] for k in HEARD],
            ),
            *("", f"BAK of a man's clips: 5 % are below {bak[0]:.2f}, half below {bak[9]:.2f}."),
            *("", f"{len(human['after'])} clips of a man with right texts, by verdict and reason:", ""),
            *table(
                ["", *sides],
                [[n, *(str(counts[s][n]) for s in sides)] for n in counts["before"] | counts["after"]],
            ),
        ],
    )
    return 0


if __name__ == "__main__":
    run(main)
