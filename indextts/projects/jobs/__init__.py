"""JOBS: commands that run in the background and outlive the page. No Gradio, no torch here.

    NAME/jobs/
      .lock                           held while a job is started: two pages cannot both start one
      {YYYYmmdd_HHMMSS}_{stage}/
        job.json       {"stage", "argvs": [[program, flag, ...], ...], "started": unix time,
                        "launcher": what stands between python and each program, mostly nothing,
                        "environment": {name: value} that is added for the programs alone,
                        "launch": {field: value} that both come from (indextts/commands/launching.py),
                        "form": {field: value}, "versions": {"python", "torch", "gradio", "commit"},
                        "after": folder of the job that this one waits for, or null,
                        "save_s", "kill_s": seconds between the stages of a stop,
                        "began": unix time, as soon as it waits no more,
                        "runner": {"pid", "start_ticks", "boot_id"}}; not a job until the runner added itself
        command.sh     the same commands, to be run by hand
        output.log     what the commands print, each after a line "$ python PROGRAM FLAGS"
        program.json   {"pid", "start_ticks", "boot_id"} of the program that runs now, or ran last
        stop_asked     {"asked": unix time}: somebody pressed Stop
        kill_asked     an empty file: somebody pressed Stop now
        exit.json      {"status": 128 + n for signal n, "reason", "ended": unix time, "stop_stage", "before"},
                       once the job is over; "before": how the job before it ended, if that kept it waiting

    starting.py   start_job          runner.py     runs the commands: a process of its own
    records.py    what the disk says of a job      files.py       what page and runner both read and write
    stopping.py   stop_job, kill_job, stop_stage   end_notice.py  the webhook
    outcome.py    how a job stands, in words       log_tail.py    the end of a log

The runner has a session of its own with all that it starts. It waits for its turn, runs the commands in order
up to the first that fails, carries out a stop in stages, ends what its programs left behind and writes
exit.json. What is known about a job is read from the disk and from /proc at each call: a second page, or the
page after a restart, sees the same. Jobs of before these fields existed are read too.
"""
