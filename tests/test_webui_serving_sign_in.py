"""The password check, and how long a wrong one waits, over a clock that the test moves."""

import asyncio
import logging

import pytest

from indextts.webui.serving import sign_in
from indextts.webui.serving.sign_in import (
    DELAY_S,
    FORGIVE_S,
    FREE_FAILURES,
    MAX_FAILURES,
    MAX_NAMES,
    Delays,
    FailedSignIns,
    PasswordCheck,
)

PASSWORD = "correct horse battery"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_password_check_knows_the_pair_and_keeps_no_password():
    check = PasswordCheck("me", PASSWORD)
    assert check("me", PASSWORD)
    wrong = [("me", PASSWORD[:-1]), ("m", f"e{PASSWORD}"), ("", ""), ("me ", PASSWORD), ("\ud800", "\ud800")]
    assert not any(check(*pair) for pair in wrong)
    assert PASSWORD not in str(vars(check))


def test_the_first_failures_are_answered_at_once_and_then_each_later_than_the_one_before():
    delays = Delays(Clock())
    waits = [delays.after_failure("me") for _ in range(FREE_FAILURES + 10)]
    assert waits[:FREE_FAILURES] == [0.0] * FREE_FAILURES
    growing = waits[FREE_FAILURES - 1 : MAX_FAILURES]
    assert growing == sorted(set(growing))
    assert set(waits[MAX_FAILURES:]) == {DELAY_S * 2 ** (MAX_FAILURES - FREE_FAILURES)}


def test_failures_of_one_name_delay_no_other():
    delays = Delays(Clock())
    for _ in range(100):
        delays.after_failure("guessed")
    assert delays.after_failure("me") == 0.0


def test_failures_are_forgiven():
    clock = Clock()
    delays = Delays(clock)
    for _ in range(1000):
        delays.after_failure("me")
    clock.now += FORGIVE_S * MAX_FAILURES
    assert delays.after_failure("me") == 0.0


def test_what_is_remembered_is_bounded():
    delays = Delays(Clock())
    for n in range(3 * MAX_NAMES):
        delays.after_failure(str(n))
    assert len(delays.failures) == MAX_NAMES


def test_the_right_password_never_waits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sign_in, "DELAY_S", 3600.0)

    async def guess_and_sign_in() -> bool:
        check = PasswordCheck("me", PASSWORD)
        guesses = [asyncio.create_task(check.verify("me", f"wrong {n}")) for n in range(100)]
        await asyncio.sleep(0)
        is_in = await check.verify("me", PASSWORD)
        assert sum(guess.done() for guess in guesses) <= FREE_FAILURES
        for guess in guesses:
            guess.cancel()
        await asyncio.gather(*guesses, return_exceptions=True)
        assert check.num_waiting == 0
        return is_in

    assert asyncio.run(guess_and_sign_in())


def test_the_terminal_hears_of_many_failures_in_few_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(sign_in, "TELL_S", 0.05)

    async def fail_often() -> None:
        failed = FailedSignIns()
        for _ in range(500):
            failed.note("10.0.0.7")
        while failed.timer is not None:
            await asyncio.sleep(0.01)

    with caplog.at_level(logging.WARNING):
        asyncio.run(fail_often())
    assert len(caplog.messages) == 2
    assert "10.0.0.7" in caplog.messages[0]
    assert "499" in caplog.messages[1]
