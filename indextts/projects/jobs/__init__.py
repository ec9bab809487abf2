"""Jobs: commands that run in the background and outlive the page. No Gradio, no torch.

    NAME/jobs/
      .lock                           held while a job starts, so that two pages cannot both start a job
                                      (TIME of a folder: the local time, or a second after the newest folder's
                                      if the clock was set back; the order of the names is that of the starts)
      {YYYYmmdd_HHMMSS}_{stage}/
        job.json       {"stage", "argvs": [[program, flag, ...], ...], "started": unix time,
                        "launcher": arguments between python and each program, usually none,
                        "environment": {name: value} added for the programs only,
                        "launch": {field: value}, the source of both (indextts/commands/launching.py),
                        "versions": {"python", "torch", "gradio", "commit"},
                        "after": folder of the job to wait for, or null,
                        "save_s", "kill_s": seconds between the phases of a stop,
                        "began": unix time of the start of the first command,
                        "runner": {"pid", "start_ticks", "boot_id"}}; a job exists once the runner is recorded
        command.sh     the same commands, to run by hand
        output.log     output of the commands, each after a line "$ python PROGRAM FLAGS"
        program.json   {"pid", "start_ticks", "boot_id"} of the current or last program
        stop_asked     {"asked": unix time} of a stop request
        kill_asked     an empty file: a request to kill the job
        exit.json      {"status": 128 + n for signal n, "reason", "ended": unix time, "stop_stage", "before"},
                       at the end of the job; "before": end reason of the job it waited for

    starting.py   start_job          runner.py     runs the commands: a process of its own
    records.py    Job, list_jobs, outcome          files.py       files that page and runner read and write
    stopping.py   stop_job, kill_job               webhook.py  the notification at the end
    log_tail.py   the end of a log

The runner is detached in a separate session. It waits for the job before it, runs the commands in order
until one fails, stops them in phases on request, ends leftover processes and writes exit.json. Its programs
and all that they start have its mark in their environment (files.py). The state of a job is read from the
disk and from /proc at each call, so a second page, or the page after a restart, shows the same.
"""
