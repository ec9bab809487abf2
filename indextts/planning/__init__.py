"""Checks and estimates before a training starts: time, disk, memory, restore plan. No torch, no Gradio."""
