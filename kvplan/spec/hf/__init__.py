"""Reading a Hugging Face config.json as the engine does: one small file a subject, one table of architectures."""
