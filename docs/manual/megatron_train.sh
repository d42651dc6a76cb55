#!/bin/bash
# Llama 3 8B on 8 devices, as Megatron-LM is often started.
TP=${TP:-4}
GPUS=8
ARGS=(
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --position-embedding-type rope --rotary-base 500000
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights
  --vocab-size 128256 --seq-length 4096 --max-position-embeddings 8192
  --micro-batch-size 1 --global-batch-size $((GPUS / TP * 32)) --bf16
  --attention-dropout 0 --hidden-dropout 0
  --lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --lr-warmup-fraction 0.01 --train-iters 1000
  --tensor-model-parallel-size $TP --sequence-parallel --use-distributed-optimizer
)
torchrun --nnodes 1 --nproc_per_node $GPUS pretrain_gpt.py "${ARGS[@]}" --log-interval 1 2>&1 | tee "$(date +%F).log"
