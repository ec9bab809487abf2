"""Which files are recordings and which are texts, by their suffix."""

SNDFILE_SUFFIXES = frozenset(
    [
        ".wav",
        ".flac",
        ".ogg",
        ".oga",
        ".opus",
        ".mp3",
        ".aiff",
        ".aif",
        ".aifc",
        ".au",
        ".snd",
        ".caf",
        ".w64",
    ]
)
FFMPEG_SUFFIXES = frozenset(
    [
        *(".m4a", ".m4b", ".mp4", ".m4v", ".mkv", ".mka", ".webm", ".mov", ".avi", ".aac", ".wma", ".wmv"),
        *(".amr", ".3gp", ".ts", ".mpg", ".mpeg", ".flv", ".ac3"),
    ]
)
AUDIO_SUFFIXES = SNDFILE_SUFFIXES | FFMPEG_SUFFIXES
SUBTITLE_SUFFIXES = (".srt", ".vtt", ".webvtt")
TEXT_SUFFIXES = frozenset([".txt", ".csv", ".tsv", ".list", ".json", ".jsonl", *SUBTITLE_SUFFIXES])
