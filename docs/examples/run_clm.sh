#!/bin/bash
# A fine-tuning job with DeepSpeed, as a launch script has it.
BATCH=2
torchrun --nproc_per_node 8 --nnodes 2 run_clm.py \
    --model_name_or_path meta-llama/Meta-Llama-3-8B \
    --block_size 2048 \
    --per_device_train_batch_size $BATCH --gradient_accumulation_steps 4 \
    --bf16 --gradient_checkpointing \
    --deepspeed docs/examples/ds_config.json
