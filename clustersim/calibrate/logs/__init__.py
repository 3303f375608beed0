"""Logs of other tools as measurements: nccl-tests, fio, torch's profiler, checkpoint and Lustre logs."""
