"""Speech recognizers, all with the interface of `recognizer.Recognizer`.

recognizer.py             the interface, and the cutting of long clips
ctc.py                    CTC models: Wav2Vec2, Wav2Vec2-BERT, HuBERT and others; log-probabilities
sequence_to_sequence.py   Whisper and other models that generate the text, Whisper also by faster-whisper
loading.py                a model from a local folder or the hub, for a language     [imports transformers]
first_transcripts.py      stops a recognizer that cannot write the language          [no torch]
"""
