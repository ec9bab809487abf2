"""Workspace with two projects: a run with every problem and checkpoints, and a healthy run."""

from pathlib import Path

from indextts.projects.project import Project, make_settings, write_project
from tests.checkpoint_files import save
from tests.written_run import WrittenRun, fill_the_disk, run_with_problems


def make_watched_workspace(workspace: Path) -> Project:
    """Make the projects `unhealthy` and `well`; return the first, which the page also shows first."""
    unhealthy, well = (make_project(workspace, name) for name in ("unhealthy", "well"))
    run_with_problems().write(unhealthy.run_dir)
    fill_the_disk(unhealthy.run_dir)
    for number in range(1, 5):
        save(unhealthy.run_dir, 1_000 * (number + 4), serial=number, is_best=number == 2)
    run = WrittenRun()
    run.train_to(2_000)
    run.part = 2
    run.start()
    run.facts(0)
    for step in range(100, 9_001, 100):
        run.train(step)
        if step % 1_000 == 0:
            run.val(step, 4.1 + 2 / (1 + step / 1_000))
    run.write(well.run_dir)
    return unhealthy


def make_project(workspace: Path, name: str) -> Project:
    project = Project(workspace / name)
    project.run_dir.mkdir(parents=True)
    write_project(project, make_settings(name=name, manifest=project.manifest, base=project.config.parent))
    return project
