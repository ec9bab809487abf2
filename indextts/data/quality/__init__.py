"""The quality of a data set: measures of each clip, what they say against it, and what to do about it."""
