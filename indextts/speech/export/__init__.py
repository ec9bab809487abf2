"""From a checkpoint to a model folder that IndexTTS2 loads."""

from indextts.speech.export.model_folder import export
from indextts.speech.export.official_files import describe_missing, missing_files

__all__ = ["describe_missing", "export", "missing_files"]
