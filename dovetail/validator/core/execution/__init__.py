"""Execution: running batches through processors so that the result equals their serial order. Pure; no sockets."""
