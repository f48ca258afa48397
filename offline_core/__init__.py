"""The pipeline without an orchestrator: episodes, storage, policies, recording, pruning, learning, evaluation."""
