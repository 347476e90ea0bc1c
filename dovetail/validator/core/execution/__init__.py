"""Execution: runs batches through processors so that the result equals that of serial order. Pure; no sockets."""
