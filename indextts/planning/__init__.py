"""Checks and estimates before training starts: time, disk, memory, restore plan. No torch, no Gradio."""
