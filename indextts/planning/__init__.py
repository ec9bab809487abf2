"""What a training will need and take, said before it starts: pure functions of facts. No torch, no Gradio."""
