#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the parameters of every config of tests/models/data/families.json with the family's own code on the meta device.

Needs torch and transformers (the figures in the file are of transformers 5.24). With --write the file is rewritten; without, differences
are printed. transformers 5.24 ties the head of T5 v1.1 whatever its config says; the published count (untied) stays.
"""
import json
import pathlib
import sys

import torch
import transformers

FILE = pathlib.Path(__file__).resolve().parent.parent / "tests/models/data/families.json"
PUBLISHED = {"t5-v1_1-xxl"}


def count(config):
    keys = {k: v for k, v in config.items() if k not in ("model_type", "architectures")}
    if "id2label" in keys:
        keys["id2label"] = {int(k): v for k, v in keys["id2label"].items()}
    made = transformers.AutoConfig.for_model(config["model_type"], **keys)
    with torch.device("meta"):
        model = getattr(transformers, config["architectures"][0])(made)
    model.tie_weights()
    return sum(p.numel() for p in model.parameters())


rows = json.loads(FILE.read_text())
for row in rows:
    if row["name"] in PUBLISHED:
        continue
    counted = count(row["config"])
    if counted != row["parameters"]:
        print(f"{row['name']}: {counted} counted, {row['parameters']} in the file")
        row["parameters"] = counted
if "--write" in sys.argv:
    FILE.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
