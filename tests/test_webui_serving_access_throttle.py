"""Tests of the limit on password tries, with a clock that the test moves."""

from indextts.webui.serving.access import (
    ALL_REFILL_S,
    ALL_TRIES,
    CLIENT_REFILL_S,
    CLIENT_TRIES,
    MAX_CLIENTS,
    LoginThrottle,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def tries_until_refused(throttle: LoginThrottle, client: str) -> int:
    done = 0
    while not throttle.wait_s(client):
        done += 1
    return done


def test_a_client_has_its_first_tries_and_then_one_per_interval():
    clock = Clock()
    throttle = LoginThrottle(clock)
    assert tries_until_refused(throttle, "a") == CLIENT_TRIES
    assert 0 < throttle.wait_s("a") <= CLIENT_REFILL_S
    clock.now += throttle.wait_s("a")
    assert tries_until_refused(throttle, "a") == 1
    assert tries_until_refused(throttle, "b") == CLIENT_TRIES


def test_many_clients_share_a_limit():
    clock = Clock()
    throttle = LoginThrottle(clock)
    allowed = sum(throttle.wait_s(f"10.0.0.{n}") == 0 for n in range(250))
    assert allowed == ALL_TRIES
    hour = 0
    for _ in range(3600):
        clock.now += 1
        hour += sum(throttle.wait_s(f"10.1.{_}.{n}") == 0 for n in range(3))
    assert hour <= 3600 / ALL_REFILL_S + 1


def test_a_locked_out_client_can_try_again_later():
    clock = Clock()
    throttle = LoginThrottle(clock)
    for _ in range(10_000):  # somebody behind the same proxy does not stop for a long time
        throttle.wait_s("proxy")
        clock.now += 0.01
    clock.now += CLIENT_REFILL_S + 0.01
    assert throttle.wait_s("proxy") == 0


def test_refused_tries_do_not_count_against_other_clients():
    throttle = LoginThrottle(Clock())
    for _ in range(10_000):
        throttle.wait_s("flood")
    assert throttle.wait_s("owner") == 0


def test_successful_sign_ins_are_not_limited():
    throttle = LoginThrottle(Clock())
    for _ in range(1000):
        assert throttle.wait_s("a") == 0
        throttle.signed_in("a")


def test_the_memory_of_the_throttle_is_bounded():
    throttle = LoginThrottle(Clock())
    for n in range(3 * MAX_CLIENTS):
        throttle.wait_s(str(n))
    assert len(throttle.clients) == MAX_CLIENTS
