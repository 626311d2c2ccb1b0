# SPDX-License-Identifier: Apache-2.0
"""Runs a shardsim scenario with the real library on CPU ranks and writes down what it did: every collective, and the memory by category.

    python -m shardsim.record job.yaml                    # JSON lines
    python -m shardsim.record --update recording.txt      # a golden of tests/recordings, made anew in place

Needs torch and transformers (peft for LoRA jobs, deepspeed for ZeRO jobs); nothing of it needs a GPU or the compiled shardsim module.
"""
