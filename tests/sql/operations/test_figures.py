"""The benchmarks of the paper's figures work: one of them runs with little data for a second, and writes JSON, text and, if the plotting library is installed, PNG."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT


def test_a_figure_is_measured_and_written(engine, tmp_path):
    if engine != "Terrace":
        pytest.skip("Terrace's own")
    if not shutil.which("sysbench"):
        pytest.skip("needs sysbench")
    draws = importlib.util.find_spec("matplotlib") is not None
    tiny = {"HALF": "sysbench,ycsb-sql", "MIX": "read-write", "ZIPF": "1.2", "FLASH": "20,30", "ROWS": "1000", "RECORDS": "2000", "CLIENTS": "2",
            "TIME": "1", "WARM_UP": "0", "SETTLE": "1", "PLOT": str(int(draws))}

    def measured(**more):
        return subprocess.run([sys.executable, os.path.join(ROOT, "bench", "fig6.py"), str(tmp_path)], env={**os.environ, **tiny, **more}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=300)

    done = measured()
    assert done.returncode == 0, done.stdout
    report = json.load(open(tmp_path / "fig6.json"))
    for half in "sysbench", "YCSB in SQL":
        row = f"{half} read-write, Zipf 1.2, flash 20 %"
        assert f"{half} read-write Zipf 1.2  flash 20 %" in done.stdout
        assert all(report["ratios"][row + what] > 0 for what in ("", ", per dollar", ", of InnoDB"))
        [run] = report["figures"][row]
        assert run["rate"] > 0 and run["dollars"] > 0
    assert (tmp_path / "fig6.png").exists() == draws
    assert not (tmp_path / "fig6.data").exists()
    # What is there is not measured again, nor stands beside what is measured otherwise.
    again = measured(GO_ON="1", PLOT="0")
    assert again.returncode == 0 and "loaded" not in again.stdout, again.stdout
    assert json.load(open(tmp_path / "fig6.json"))["figures"] == report["figures"]
    other = measured(GO_ON="1", TIME="2")
    assert other.returncode != 0 and "GO_ON" in other.stdout and json.load(open(tmp_path / "fig6.json"))["figures"] == report["figures"]
