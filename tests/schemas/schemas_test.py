#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the program writes holds to the schemas of docs/schemas: schemas_test.py SOURCE_FOLDER SHARDSIM. Exit code 77 (skipped) without jsonschema."""

import copy
import json
import pathlib
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: python3-jsonschema is not installed")
    sys.exit(77)

source, program = pathlib.Path(sys.argv[1]), sys.argv[2]
schemas = {}
for file in sorted((source / "docs/schemas").glob("*.schema.json")):
    schema = json.loads(file.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    schemas[schema["$id"]] = schema


def inlined(node):
    """References to another document of ours by its content: no resolver, no network."""
    if isinstance(node, dict):
        if node.get("$ref") in schemas:
            return inlined({k: v for k, v in schemas[node["$ref"]].items() if k not in ("$schema", "$id")})
        return {k: inlined(v) for k, v in node.items()}
    return [inlined(v) for v in node] if isinstance(node, list) else node


def documents(*words, codes=(0,)):
    run = subprocess.run([program, *map(str, words), "--format", "json"], capture_output=True, text=True, cwd=source, timeout=300)
    assert run.returncode in codes, f"{words}: exit {run.returncode}\n{run.stderr}"
    value = json.loads(run.stdout)
    return value if isinstance(value, list) else [value]


scenarios = sorted(str(p.relative_to(source)) for p in (source / "scenarios").glob("*.yaml"))
written = [
    *documents("simulate", *scenarios),
    *documents("simulate", "scenarios/gpt2-ddp-8xa100.yaml", "--explain"),
    *documents("compare", "docs/examples/job.yaml", "--strategies", "ddp,zero2,fsdp2"),
    *documents("plan", "docs/examples/job.yaml", "--scaling", "1..16"),
    *documents("plan", "docs/examples/job.yaml", "--set", "cluster.capacity=1 GiB", codes=(1,)),
    *documents("check", "scenarios/cases"),
    *documents("execute", "scenarios/execute/tiny.yaml", "--ranks", "2"),
]
seen = set()
for document in written:
    name = document["schema"]
    seen.add(name)
    jsonschema.Draft202012Validator(inlined(schemas[name])).validate(document)
assert seen == set(schemas), f"schemas that nothing was held to: {set(schemas) - seen}"

# A schema that accepts anything holds nothing: each must miss a required key, and a word in place of a number.
for name, schema in schemas.items():
    example = next(d for d in written if d["schema"] == name)
    validator = jsonschema.Draft202012Validator(inlined(schema))
    for key in schema["required"]:
        wrong = copy.deepcopy(example)
        del wrong[key]
        assert not validator.is_valid(wrong), f"{name} does without {key}"
wrong = copy.deepcopy(next(d for d in written if d["schema"] == "shardsim.simulate/1"))
wrong["memory"]["peak_bytes"] = "80 GiB"
assert not jsonschema.Draft202012Validator(inlined(schemas["shardsim.simulate/1"])).is_valid(wrong)
print(f"{len(written)} documents, {len(schemas)} schemas")
