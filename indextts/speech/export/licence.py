"""What goes with a model that was made from the published weights; facts, in our words."""

LICENCE_NOTE = """\
Licence of this model
=====================

This is a note, not the licence. If gpt.pth was trained from the published weights of IndexTTS-2, the bilibili
Model Use License that comes with those weights applies to it. Read that text before you pass anything on;
where this note and the text differ, the text holds. A base with weights of your own is not concerned.

* A fine-tuned model counts as a derivative work of the published one (1.4), so the same terms hold for it.
* Keep the licence text and all notices that came with the base model, and put them into this folder.
* Where you offer the model or what uses it, state the sentence that 4.1a prescribes; take it from the text.
* Pass the terms on: whoever gets the model from you is bound by them too.
* The model and what it makes may not be used to improve other AI models, non-commercial ones excepted (3.4c).
* Above 100 million monthly users, or 1 billion RMB of revenue, a separate licence is needed (2.2).

The recordings have rights of their own: say whose voice it is, and that its owner agrees to what you do.
"""
