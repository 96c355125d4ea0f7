"""Many runs as one: composed once per choice of groups, computed in chunks, resumed for free.

`space` says which points there are, `plan` cuts them into chunks, `task` computes one chunk, an engine decides where,
and `driver` writes one results part per chunk. Only the driver writes; workers are pure functions of a plan and a job.
"""
