"""The quality of a data set: measures of each clip, reasons to reject it, and a summary."""
