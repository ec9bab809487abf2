"""Tests of the engine of the speech server: a stream beside other requests sounds as it would alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from indextts.commands.speech import Serve
from indextts.features.builtin import log_mel
from indextts.projects.project import Project
from indextts.speech.evaluation.judge import Judge
from indextts.speech.serving.engine import Engine, Request
from indextts.speech.synthesis.segments import Line, prompt_of
from indextts.speech.synthesis.streaming import FADE_S, SpeechStream, Windows
from indextts.speech.synthesis.synthesize import SEED_STRIDE, load_tts, resolve_sampling
from tests.speaking_run import clips_of
from tests.waiting import wait_until


@pytest.mark.slow
def test_a_streaming_request_gets_its_first_segment_in_pieces_and_the_others_whole(tuned: Project):
    voice = clips_of(tuned)[0].audio
    command = Serve(checkpoint=tuned.run_dir, voices=[voice], max_codes=150, device="cpu")
    tts = load_tts(command, tuned.run_dir, torch.device("cpu"))
    engine = Engine(tts, resolve_sampling(command, "builtin"), max_batch=2)
    gpt = engine.tts.trained.gpt
    gpt.mel_head.bias.data[gpt.config.stop_mel_token] = -1e4  # it speaks to the limit of the codes
    parts = tuple(engine.tts.split("ሰላም ለዓለም ሁሉ ይሁን ብለው ተናገሩ። " * 6))
    assert len(parts) > 2
    received: list[list[Any]] = [[], [], []]
    for one, is_stream in zip(received, (True, False, True), strict=True):
        engine.submit(Request(parts, voice, one.append, is_stream=is_stream))
    engine.judge, best = Judge([], None), list[Any]()
    several = Request(parts[:2], voice, best.append, num_candidates=2)
    engine.submit(several)
    threads = engine.start()
    wait_until(lambda: not engine._requests)
    engine.close()
    for thread in threads:
        thread.join()
    line = Line(parts, engine.tts.read_voice(voice), engine.sampling.seed)
    assert (len(best), best[-1]) == (3, None)
    for number, found in enumerate(several.choices):
        assert [one["seed"] for one in found] == [number, SEED_STRIDE + number]
        [chosen] = [one for one in found if one["is_chosen"]]
        single = Line(parts[number : number + 1], line.voice, chosen["seed"])
        [(_, alone)] = tts.speak([single], engine.sampling)
        assert distance(best[number][-len(alone.samples) :], alone.samples) < 0.1
    first = Line(parts[:1], line.voice, line.seed)
    [(_, whole)] = tts.speak([line], engine.sampling)
    [(_, beginning)] = tts.speak([first], engine.sampling)
    streamed = np.concatenate(list(SpeechStream(tts, first, engine.sampling)))
    wanted = np.concatenate([streamed, whole.samples[len(beginning.samples) :]])
    for one, is_stream in zip(received, (True, False, True), strict=True):
        assert one.pop() is None
        assert (len(one) > len(parts)) == is_stream
        sound = np.concatenate(one)
        if is_stream:
            assert len(sound) == len(wanted)
            assert distance(one[0], streamed[: len(one[0])]) < 0.1
            # other requests decide where the windows end, and random codes sound otherwise in other windows
            windows = Windows(tts, line.voice.reference, prompt_of(tts.trained.tokenizer, first, 0))
            same = replayed(windows, beginning.segments[0].codes.cpu(), one, len(streamed))
            assert distance(sound[: len(streamed)], same) < 0.1
            assert distance(sound[len(streamed) :], wanted[len(streamed) :]) < 0.1
        else:
            assert distance(sound, whole.samples) < 0.1


def replayed(windows: Windows, codes: Tensor, pieces: Sequence[np.ndarray], size: int) -> np.ndarray:
    """Return the sound of a segment, `size` samples, in windows that end where the pieces end."""
    renderer, sounds, played = windows._tts.renderer, list[np.ndarray](), 0
    beyond = windows._codes(renderer.tail_s) + windows._codes(FADE_S)
    while played < size:
        played += len(pieces[len(sounds)])
        known = len(codes) if played == size else played // renderer.num_samples(1) + beyond
        sounds.append(windows.play(codes[:known], is_end=played == size))
    return np.concatenate(sounds)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the mean difference of log-mel frames: rounding of the pitch moves the phase of harmonics."""
    return float((log_mel(one) - log_mel(other)).abs().mean())
