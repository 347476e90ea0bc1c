"""What the other packages under ``dovetail`` share: key files, log lines, signals, output. It knows no node."""
