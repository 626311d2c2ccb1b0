# SPDX-License-Identifier: Apache-2.0
"""The Python package against the command line: the same documents, problems with their places, warnings, progress, speed in proportion."""

import json
import os
import pathlib
import subprocess
import threading
import time
import warnings

import pytest
import shardsim

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("SHARDSIM_EXECUTABLE", "shardsim")
MAIN = SOURCE / "scenarios/llama3-8b-fsdp2-64xh100.yaml"
JOB = {
    "model": {"preset": "gpt2"},
    "cluster": {"profile": "clusters/h100-sxm.yaml", "nodes": 2},
    "training": {"sequence_length": 256, "micro_batch_size": 4},
    "strategy": {"name": "ddp"},
}
TEXT = "model: {preset: gpt2}\ncluster: {profile: clusters/h100-sxm.yaml, nodes: 2}\ntraining: {sequence_length: 256, micro_batch_size: 4}\nstrategy: {name: ddp}\n"


def command(*words):
    run = subprocess.run([PROGRAM, *map(str, words), "--format", "json"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_simulate_is_the_command():
    assert shardsim.simulate(MAIN).to_dict() == command("simulate", MAIN)


def test_overrides_are_those_of_set():
    got = shardsim.simulate(MAIN, overrides={"cluster.nic_bandwidth": "100 Gbit/s", "training.micro_batch_size": 2})
    want = command("simulate", MAIN, "--set", "cluster.nic_bandwidth=100 Gbit/s", "--set", "training.micro_batch_size=2")
    assert got.to_dict() == want


def test_a_dict_and_text_say_what_a_file_says(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text(TEXT)
    documents = [shardsim.simulate(s).to_dict() for s in (file, TEXT, JOB)]
    for document in documents:
        document.pop("scenario")
    assert documents[0] == documents[1] == documents[2]


def test_an_edited_file_is_read_again(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}')
    file = tmp_path / "s.yaml"
    file.write_text(TEXT.replace("{preset: gpt2}", "{hf_config: config.json}"))
    before = shardsim.simulate(file).model.parameters
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_embd": 768, "n_layer": 6, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}')
    assert shardsim.simulate(file).model.parameters < before


def test_results_have_attributes_tables_and_pages():
    result = shardsim.simulate(MAIN)
    assert result.step.time_s == result.to_dict()["step"]["time_s"]
    assert result.memory["peak_bytes"] == result.memory.peak_bytes
    assert "time_s" in dir(result.step)
    assert "Sent by each rank" in result.table() and "<svg" in result.svg() and "traceEvents" in result.trace()
    assert result._repr_html_().startswith("<iframe")
    with pytest.raises(AttributeError, match="time_s"):
        result.step.seconds
    with pytest.raises(AttributeError):
        result.step.time_s = 1


def test_compare_and_plan_are_the_commands():
    assert shardsim.compare(MAIN, ["fsdp2", "zero3"]).to_dict() == command("compare", MAIN, "--strategies", "fsdp2,zero3")
    job = SOURCE / "docs/examples/job.yaml"
    seen = []
    plan = shardsim.plan(job, progress=lambda done, total: seen.append((done, total)))
    assert plan.to_dict() == command("plan", job)
    assert seen and max(done for done, _ in seen) == seen[0][1]


def test_a_sweep_has_its_rows_in_order(tmp_path):
    seen = []
    sweep = shardsim.sweep(
        {"base": str(MAIN), "grid": {"training.micro_batch_size": [1, 2, 0], "cluster.nodes": [4, 8]}}, jobs=2, progress=lambda done, total: seen.append(done)
    )
    assert [row["index"] for row in sweep] == list(range(6)) and max(seen) == 6
    assert sweep[0]["step.time_s"] > 0 and sweep[4]["error"]
    frame = sweep.to_pandas()
    assert len(frame) == 6 and frame["memory.peak_bytes"].notna().sum() == 4


def test_check_and_formula():
    checked = shardsim.check(SOURCE / "scenarios/cases")
    assert checked.failed == 0 and checked.checked > 3
    zero3 = shardsim.formula("zero3", parameters=7.5e9, ranks=64)
    assert zero3.states[0].bytes == 2 * 7_500_000_000 // 64  # 2 bytes a parameter, sharded over 64 ranks


@pytest.mark.parametrize("given", ["file", "text", "dict"])
def test_problems_are_one_exception_with_places(given, tmp_path):
    text = TEXT.replace("micro_batch_size", "micro_batch_sise")
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    scenario = {"file": file, "text": text, "dict": {**JOB, "training": {"micro_batch_sise": 1}}}[given]
    with pytest.raises(shardsim.Problem, match="micro_batch_sise") as caught:
        shardsim.simulate(scenario)
    problem = caught.value
    assert problem.line > 0 and problem.column > 0 and "micro_batch_size" in " ".join(problem.places[0].notes)
    assert problem.file == {"file": str(file), "text": "<text>", "dict": "<dict>"}[given]


def test_a_missing_file_is_named():
    with pytest.raises(shardsim.Problem, match="/nowhere/s.yaml"):
        shardsim.simulate("/nowhere/s.yaml")


def test_warnings_are_warnings():
    with pytest.warns(shardsim.PredictionWarning):
        shardsim.simulate(MAIN, overrides={"training.micro_batch_size": 512})


def test_an_exception_of_the_callback_reaches_the_caller():
    def stop(done, total):
        raise KeyError("enough")

    with pytest.raises(KeyError):
        shardsim.plan(SOURCE / "docs/examples/job.yaml", progress=stop)


def test_other_threads_run_meanwhile():
    ticks, stop = [0], threading.Event()

    def tick():
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks[0]
    shardsim.plan(MAIN)
    during = ticks[0] - before
    stop.set()
    thread.join()
    assert during > 0


def test_calls_from_threads_are_calls_of_their_own():
    speeds = [100, 200, 400, 800]
    alone = [shardsim.simulate(MAIN, overrides={"cluster.nic_bandwidth": f"{s} Gbit/s"}).step.time_s for s in speeds]
    together = [None] * len(speeds)

    def one(i):
        together[i] = shardsim.simulate(MAIN, overrides={"cluster.nic_bandwidth": f"{speeds[i]} Gbit/s"}).step.time_s

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(speeds))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert together == alone


def test_catalogue():
    assert "fsdp2" in [s.name for s in shardsim.strategies()]
    assert "llama-3-8b" in shardsim.models() and "clusters/h100-sxm.yaml" in shardsim.clusters()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = shardsim.import_scenario("deepspeed", SOURCE / "docs/examples/ds_config.json", model="gpt2")
    assert shardsim.simulate(text, overrides={"model": "{preset: gpt2}"}).strategy.startswith("zero")
