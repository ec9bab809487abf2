"""Tests of indextts/data/on_ray/ on a cluster of two nodes with one core each, both on this machine."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from indextts.commands.data import CheckData
from indextts.data.check import check
from indextts.data.on_ray.cluster import running_on
from indextts.data.preprocess import preprocess
from indextts.errors import DISK_FULL, UserError
from tests.preprocess_project import command, files_of, spoil, write_dataset, write_model
from tests.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from indextts.data.on_ray.pool import Place

pytestmark = pytest.mark.long

STORE_BYTES = 100_000_000


@pytest.fixture(scope="module")
def machines() -> Iterator[object]:
    """Cluster of two nodes."""
    pytest.importorskip("ray", reason="needs the extra distributed")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # otherwise Ray requires the user's token
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        settings = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
        cluster = Cluster(initialize_head=True, head_node_args=settings | {"include_dashboard": False})
        cluster.add_node(**settings)
        yield cluster
        cluster.shutdown()


def on_ray(folder: Path, machines) -> dict[str, object]:
    return {"engine": "ray", "ray_address": machines.address}


def test_the_features_of_a_cluster_are_those_of_one_machine_byte_for_byte(tmp_path, machines):
    write_dataset(tmp_path / "data", "ab" * 150, max_duration_s=0.4)
    write_model(tmp_path / "model")
    wanted = spoil(tmp_path)  # one is rejected during encoding, which shifts the following shards
    result = preprocess(command(tmp_path))
    assert {one.id: one.code for one in result.rejected} == wanted
    local = files_of(tmp_path / "out")
    assert "features/conditioning" in "".join(local)
    shutil.rmtree(tmp_path / "out")
    assert preprocess(command(tmp_path, **on_ray(tmp_path, machines))) == result
    assert files_of(tmp_path / "out") == local
    again = preprocess(command(tmp_path, **on_ray(tmp_path, machines)))
    assert (again.num_encoded, again.num_kept) == (0, 293)
    assert files_of(tmp_path / "out") == local


def test_the_checks_of_a_cluster_are_those_of_one_machine(tmp_path, machines):
    manifest = write_dataset(tmp_path, "ab" * 30)
    (tmp_path / "audio/3.wav").write_bytes(b"no audio")
    local = CheckData(train_manifest=manifest, report_dir=tmp_path / "local", num_workers=1)
    far = local.model_copy(update={"report_dir": tmp_path / "far", **on_ray(tmp_path, machines)})
    for one, other in zip(check(local), check(far), strict=True):
        assert one.problems == other.problems
        assert one.facts == other.facts
    assert files_of(tmp_path / "far")["clips.jsonl"] == files_of(tmp_path / "local")["clips.jsonl"]
    assert len((tmp_path / "far/measured/sound.jsonl").read_text().splitlines()) == 1 + 59


def noting(folder: Path, how: str, place: "Place") -> tuple[Mapping[str, str], Callable[[int], int]]:
    """Return a task that logs its start and, for the number 2, fails as `how` says.

    If `how` is a machine, every task there hangs, and those elsewhere wait for the first of them.
    """

    if how == "load":
        os.kill(os.getpid(), signal.SIGKILL)

    def do(number: int) -> int:
        with (folder / "begun").open("a") as file:
            file.write(f"{number}\n")
        if how == place.node:
            (folder / "hanging").touch()
            time.sleep(3600)
        while len(how) > 10 and not (folder / "hanging").exists():
            time.sleep(0.01)
        if number == 2 and (how == "always" or (how == "once" and not (folder / "died").exists())):
            (folder / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 2 and how == "error":
            raise UserError("no room", DISK_FULL)
        return number * number

    return {"the version of the work": "2" if how == "other" else "1"}, do


def squares(folder: Path, machines, how: str) -> list[int]:
    from indextts.data.on_ray.pool import Pool  # without Ray, the tests of this file are skipped

    with running_on("ray", machines.address):
        pool = Pool(partial(noting, folder, how), {"the version of the work": "1"}, "machine")
        try:
            return list(pool.map(range(12), lambda number: f"task {number}"))
        finally:
            pool.close()


def test_only_the_task_of_a_dead_process_is_repeated_and_results_are_in_order(tmp_path, machines, caplog):
    assert squares(tmp_path, machines, "once") == [number * number for number in range(12)]
    assert sorted(map(int, (tmp_path / "begun").read_text().split())) == sorted([*range(12), 2])
    assert caplog.text.count("task ") == caplog.text.count("task 2") == 1


def test_the_error_names_a_task_that_always_kills_its_process(tmp_path, machines):
    with pytest.raises(UserError, match=r"^task 2: 3 processes .* on [\d.]+;"):
        squares(tmp_path, machines, "always")
    assert (tmp_path / "begun").read_text().split().count("2") == 3


def test_a_user_error_of_a_process_has_its_machine(tmp_path, machines):
    with pytest.raises(UserError, match=r"^[\d.]+: no room$") as caught:
        squares(tmp_path, machines, "error")
    assert caught.value.exit_status == DISK_FULL


def test_the_error_names_a_machine_with_different_files(tmp_path, machines):
    with pytest.raises(UserError, match=r"^[\d.]+: the version of the work is 2, but 1 "):
        squares(tmp_path, machines, "other")


def test_machines_where_every_process_dies_are_excluded(tmp_path, machines, caplog):
    with pytest.raises(UserError, match=r"^--engine ray: .*\(2 slots "):
        squares(tmp_path, machines, "load")
    assert caplog.text.count("3 processes died") == 2


def test_a_stop_has_its_exit_status_also_while_ray_waits(machines):
    import ray

    def wait_in_ray() -> None:
        with running_on("ray", machines.address):
            stop = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
            stop.start()
            ray.wait([ray.remote(lambda: time.sleep(3600)).remote()], timeout=PATIENCE_S)

    with pytest.raises(SystemExit) as stopped:
        wait_in_ray()
    assert stopped.value.code == 128 + signal.SIGTERM


def test_a_dead_machine_loses_only_its_task(tmp_path, machines):
    third = machines.add_node(num_cpus=1, object_store_memory=STORE_BYTES)

    def kill_machine() -> None:
        wait_until((tmp_path / "hanging").exists)
        machines.remove_node(third, allow_graceful=False)

    killer = threading.Thread(target=kill_machine)
    killer.start()
    assert squares(tmp_path, machines, third.node_id) == [number * number for number in range(12)]
    killer.join()
    begun = (tmp_path / "begun").read_text().split()
    assert len(begun) == 13
    assert set(begun) == set(map(str, range(12)))
