"""From a checkpoint to a model folder that IndexTTS2 loads."""

from indextts.speech.export.model_folder import export

__all__ = ["export"]
