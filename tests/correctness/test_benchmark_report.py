"""tinygpt report benchmark: planted faults between two files, each with its words and its exit code."""

import json
import math
import os
import subprocess
import sys
from fractions import Fraction

import pytest

from tinygpt.cli import main
from tinygpt.errors import UsageError
from tinygpt.report.benchmark import share

BOTH = ("--fail-peak", "2%", "--fail-time", "10%")
PEAK = ("--fail-peak", "2%")
CASES = (("none", "plain", 80_000_000, 1.0), ("all", "tinygpt", 40_000_000, 1.5), ("sqrt", "mlx.nn", 50_000_000, 2.0))


def benchmark(policy, wrapper, peak_bytes, median):
    """Return a record as pytest-benchmark writes it."""
    return {
        "name": f"test_speed_of_a_training_step[tiny 2x128 {policy} {wrapper}]",
        "stats": {"median": median, "rounds": 5},
        "extra_info": {
            "row": "tiny 2x128",
            "policy": policy,
            "wrapper": wrapper,
            "compiled": True,
            "dtype": "float32",
            "peak_bytes": peak_bytes,
            "schedule": "training step",
            "backend": "cpu",
            "device": "x86_64",
            "packages": {"mlx": "0.32.4"},
            "system": "Linux x86_64",
            "variables": {},
        },
    }


def stored():
    """Return a whole file."""
    return {
        "machine_info": {"node": "here", "cpu": {"brand_raw": "Some CPU", "count": 2}},
        "benchmarks": [benchmark(*case) for case in CASES],
    }


def with_peak(peak_bytes):
    """Return what gives the second case another peak."""
    return lambda file: file["benchmarks"][1]["extra_info"].update(peak_bytes=peak_bytes)


def with_time(median):
    """Return what gives the first case another step time."""
    return lambda file: file["benchmarks"][0]["stats"].update(median=median)


def with_extra(**fields):
    """Return what changes the extra information of every case."""
    return lambda file: [record["extra_info"].update(fields) for record in file["benchmarks"]]


def renamed(file):
    """Call the policy of a case something else."""
    file["benchmarks"][2]["extra_info"]["policy"] = "segments:2"


def on_another_cpu(file):
    """Move to another machine."""
    file["machine_info"]["cpu"]["brand_raw"] = "Other CPU"


def without_extra(file):
    """Drop what tinygpt writes into a record."""
    file["benchmarks"][1]["extra_info"] = {}


def without_peak(file):
    """Drop one field of it."""
    del file["benchmarks"][1]["extra_info"]["peak_bytes"]


@pytest.fixture
def report(tmp_path, capsys):
    """Return a function that compares a whole file with a changed one: exit code, stdout, stderr."""

    def run(change, *options):
        before, after = stored(), stored()
        change(after)
        for name, file in (("A.json", before), ("B.json", after)):
            (tmp_path / name).write_text(json.dumps(file))
        code = main(["report", "benchmark", str(tmp_path / "A.json"), str(tmp_path / "B.json"), *options])
        said = capsys.readouterr()
        assert max(map(len, said.out.splitlines()), default=0) <= 80
        return code, said.out.replace(str(tmp_path) + os.sep, ""), said.err.replace(str(tmp_path) + os.sep, "")

    return run


# What is changed in B, the options, the exit code, and words of the output.
COMPARED = {
    "same": (lambda _: None, BOTH, 0, "verdict: fine: 3 cases, peak within +2%, time within +10%"),
    "no threshold": (with_peak(80_000_000), (), 0, "verdict: fine: 3 cases, no threshold"),
    "peak 3 % up": (with_peak(41_200_000), BOTH, 1, "verdict: failed: 3 cases, peak 1 above +2%, time within +10%"),
    "peak 3 % up, bare share": (with_peak(41_200_000), ("--fail-peak", "0.02"), 1, "peak 1 above +2%"),
    "peak at the threshold": (with_peak(40_800_000), BOTH, 0, "verdict: fine"),
    "peak one byte over": (with_peak(40_800_001), BOTH, 1, "peak 1 above +2%"),
    "peak lower": (with_peak(20_000_000), BOTH, 0, "verdict: fine"),
    "peak 3 % up, time asked": (with_peak(41_200_000), ("--fail-time", "10%"), 0, "verdict: fine"),
    "time 11 % up": (with_time(1.11), BOTH, 1, "verdict: failed: 3 cases, peak within +2%, time 1 above +10%"),
    "time at the threshold": (with_time(1.1), BOTH, 0, "verdict: fine"),
    "time one tick over": (with_time(math.nextafter(1.1, 2)), BOTH, 1, "time 1 above +10%"),
    "case missing": (lambda file: file["benchmarks"].pop(), BOTH, 1, "missing: tiny 2x128 sqrt mlx.nn"),
    "case missing, no threshold": (lambda file: file["benchmarks"].pop(), (), 1, "no threshold, 1 missing"),
    "case renamed": (renamed, BOTH, 1, "added: tiny 2x128 segments:2 mlx.nn"),
    "case added": (
        lambda file: file["benchmarks"].append(benchmark("halves", "tinygpt", 1, 1)), BOTH, 0,
        "added: tiny 2x128 halves tinygpt",
    ),
    "other device": (
        with_extra(device="arm"), BOTH, 2, "verdict: incomparable: time; 3 cases, peak within +2%",
    ),
    "other device, peak asked": (with_extra(device="arm"), PEAK, 0, "differing: device; time not comparable\n"),
    "other device, peak up": (
        lambda file: (with_extra(device="arm")(file), with_peak(41_200_000)(file)), PEAK, 1, "peak 1 above +2%",
    ),
    "other CPU": (on_another_cpu, BOTH, 2, "  cpu: Some CPU x 2 -> Other CPU x 2\n"),
    "other host, same CPU": (lambda file: file["machine_info"].update(node="there"), BOTH, 0, "verdict: fine"),
    "other backend": (with_extra(backend="cuda"), PEAK, 2, "differing: backend; peak and time not comparable\n"),
    "other backend, no threshold": (with_extra(backend="cuda"), (), 2, "verdict: incomparable: peak and time; 3 cases"),
    "other MLX setting": (with_extra(variables={"MLX_ENABLE_TF32": "0"}), BOTH, 2, "variables: none -> MLX_ENABLE_"),
    "other dtype": (with_extra(dtype="bfloat16"), BOTH, 2, "differing: dtypes; time not comparable"),
    "other dtype, peak asked": (with_extra(dtype="bfloat16"), PEAK, 1, "3 missing"),
    "not compiled": (with_extra(compiled=False), PEAK, 1, "missing: tiny 2x128 none plain"),
    "other release": (
        with_extra(packages={"mlx": "0.33.0"}), BOTH, 0, "differing: packages; both comparable\n  packages: mlx 0.32.4",
    ),
}  # fmt: skip

# What is changed in B, and the words on stderr.
REFUSED = {
    "no benchmarks": (lambda file: file.update(benchmarks=[]), "[benchmark] B.json: got no benchmarks"),
    "no list": (lambda file: file.update(benchmarks=3), "[benchmark] B.json: got no benchmarks"),
    "no record": (lambda file: file.update(benchmarks=[None]), "[benchmark] B.json: benchmark 0, extra_info: got none"),
    "peak NaN": (with_peak(math.nan), "peak_bytes: got NaN, expected int"),
    "peak true": (with_peak(True), "peak_bytes: got True, expected int"),
    "peak zero": (with_peak(0), "peak_bytes: got 0, expected bytes above 0"),
    "time NaN": (with_time(math.nan), "median: got NaN, expected seconds above 0"),
    "time infinite": (with_time(math.inf), "median: got Infinity, expected seconds above 0"),
    "time negative": (with_time(-1.0), "median: got -1.0, expected seconds above 0"),
    "time zero": (with_time(0.0), "expected seconds above 0"),
    "no time": (lambda file: file["benchmarks"][0].pop("stats"), "median: got None, expected seconds"),
    "no extra_info": (without_extra, "[tiny 2x128 all tinygpt]', extra_info: got none, expected row"),
    "no peak": (without_peak, "extra_info: got no peak_bytes, expected one"),
    "case twice": (lambda file: file["benchmarks"].append(file["benchmarks"][0]), "got 'tiny 2x128 none plain' twice"),
    "two machines": (
        lambda file: file["benchmarks"][2]["extra_info"].update(device="arm"), "device: got more than one, expected",
    ),
}  # fmt: skip

THRESHOLDS = {"2%": "1/50", "2 %": "1/50", "0.02": "1/50", ".5": "1/2", "0": "0", "150%": "3/2", "2.5%": "1/40"}
NO_THRESHOLDS = ("", "two", "2", "1", "-1%", "nan", "inf", "2%%", "1e-2", "٢%", "1/50", " 2%")


@pytest.mark.parametrize(("change", "options", "code", "words"), COMPARED.values(), ids=COMPARED)
def test_two_files_get_their_verdict(report, change, options, code, words):
    """A planted difference has its exit code and its words, and nothing is on stderr."""
    found, out, err = report(change, *options)

    assert (found, err) == (code, "")
    assert words in out
    assert out.splitlines()[-1].startswith("verdict: ")


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_is_none_is_refused(report, change, words):
    """One line on stderr that says where, exit code 3, and no verdict."""
    code, out, err = report(change, *BOTH)

    assert (code, out, err.count("\n")) == (3, "", 1)
    assert err.startswith("[benchmark] B.json")
    assert words in err


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 100_000, b'{"benchmarks": [' + b"9" * 5000 + b"]}"])
def test_what_is_no_json_object_is_refused(tmp_path, capsys, content):
    """Empty, a list, no text, too deep, a number without end: one line, exit code 3."""
    (tmp_path / "B.json").write_bytes(content)

    assert main(["report", "benchmark", str(tmp_path / "B.json"), str(tmp_path / "B.json")]) == 3
    assert capsys.readouterr().err.startswith(f"[benchmark] {tmp_path / 'B.json'}: got ")


def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path, capsys):
    """Whatever is missing from its end, it is bad input."""
    whole = json.dumps(stored())
    (tmp_path / "A.json").write_text(whole)
    codes = set()
    for length in range(0, len(whole), 7):
        (tmp_path / "B.json").write_text(whole[:length])
        codes.add(main(["report", "benchmark", str(tmp_path / "A.json"), str(tmp_path / "B.json")]))

    assert codes == {3}
    assert "expected the JSON of pytest-benchmark" in capsys.readouterr().err


def test_a_missing_file_is_bad_input(capsys):
    """It is named."""
    assert main(["report", "benchmark", "none.json", "none.json"]) == 3
    assert capsys.readouterr().err.startswith("[benchmark] none.json: got No such file")


@pytest.mark.parametrize(("text", "expected"), THRESHOLDS.items())
def test_threshold_is_a_share(text, expected):
    """With a percent sign or as a number below 1, exactly."""
    assert share(text) == Fraction(expected)


@pytest.mark.parametrize("text", NO_THRESHOLDS)
def test_threshold_that_is_no_share_is_refused(text):
    """A bare number of 1 and more too: it is a percent sign forgotten."""
    with pytest.raises(UsageError, match="threshold: got "):
        share(text)


def test_threshold_that_is_no_share_is_exit_code_3(report):
    """On the command line it is bad input, as anything is."""
    code, out, err = report(lambda _: None, "--fail-peak", "2")

    assert (code, out) == (3, "")
    assert err == "[benchmark] threshold: got '2', expected a share such as 2% or 0.02\n"


def test_table_shows_what_is_above_a_threshold(report):
    """A line for each case: MiB and ratio, ms and ratio of the second file, marked where it is too much."""
    _, out, _ = report(with_peak(41_200_000), *BOTH)

    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "MiB ratio ms ratio",
        "tiny 2x128 none plain 76.3 1.000 1,000.0 1.000",
        "tiny 2x128 all tinygpt 39.3 1.030! 1,500.0 1.000",
        "tiny 2x128 sqrt mlx.nn 47.7 1.000 2,000.0 1.000",
        "verdict: failed: 3 cases, peak 1 above +2%, time within +10%",
    ]


def test_table_fits_80_columns_whatever_the_names(report):
    """Long rows have their own line, and many differences are counted; the fixture measures every line."""
    fields = dict.fromkeys(("device", "backend", "system", "schedule"), "long " * 40)

    def change(file):
        on_another_cpu(file)
        with_extra(**fields, variables={"MLX_ENABLE_TF32": "0"}, packages={"mlx": "1"}, compiled=False)(file)
        file["benchmarks"].append(benchmark("all", "w" * 300, 1, 1e6))
        file["benchmarks"][-1]["extra_info"].update({**file["benchmarks"][0]["extra_info"], "wrapper": "w" * 300})

    code, out, _ = report(change, *BOTH)

    assert code == 2
    assert out.startswith("differing: 8 conditions; peak and time not comparable\n")


def test_names_do_nothing_to_a_terminal(report):
    """Control characters of a file are not printed, neither in the table nor in an error."""
    evil = "\x1b[2J\nx"

    _, out, _ = report(
        lambda file: (with_extra(device=evil)(file), file["benchmarks"][0]["extra_info"].update(row=evil))
    )
    _, _, err = report(with_extra(peak_bytes=evil))

    assert "\x1b" not in out + err
    assert err.count("\n") == 1


def test_ratios_that_mean_nothing_are_not_shown(report):
    """On another device a time has no ratio; peaks keep theirs."""
    _, out, _ = report(with_extra(device="arm"))

    assert "tiny 2x128 none plain 76.3 1.000 1,000.0 -" in [" ".join(line.split()) for line in out.splitlines()]


def test_comparison_is_written_as_json(report, tmp_path):
    """Sizes in bytes, times in seconds, both sides, and the verdict."""
    report(lambda file: (with_peak(41_200_000)(file), renamed(file)), *BOTH, "--json", str(tmp_path / "C.json"))

    found = json.loads((tmp_path / "C.json").read_text())
    assert found["cases"][1] == {
        "case": "tiny 2x128 all tinygpt",
        "before": {"peak_bytes": 40_000_000, "step_s": 1.5},
        "after": {"peak_bytes": 41_200_000, "step_s": 1.5},
        "peak_ratio": 1.03,
        "time_ratio": 1.0,
        "over": ["peak"],
    }
    assert (found["exit_code"], found["thresholds"]) == (1, {"peak": 0.02, "time": 0.1})
    assert (found["missing"], found["added"]) == (["tiny 2x128 sqrt mlx.nn"], ["tiny 2x128 segments:2 mlx.nn"])


def test_comparison_that_cannot_be_written_is_exit_code_3(report):
    """No verdict then: whoever reads the file would miss it."""
    code, out, err = report(lambda _: None, "--json", "no/such/file")

    assert (code, out) == (3, "")
    assert err.startswith("[benchmark] --json no/such/file: got No such file")


def test_report_runs_without_mlx_into_a_closed_pipe(tmp_path):
    """A process in which MLX cannot be imported compares, and does not complain when nobody reads on."""
    (tmp_path / "A.json").write_text(json.dumps(stored()))
    code = "import sys; sys.modules.update({'mlx': None, 'pytest_benchmark': None, 'pytest': None}); "
    code += "from tinygpt.cli import main; sys.exit(main(['report', 'benchmark', 'A.json', 'A.json']))"
    command = [sys.executable, "-c", code]

    whole = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    read_end, write_end = os.pipe()
    os.close(read_end)
    closed = subprocess.run(command, cwd=tmp_path, stdout=write_end, stderr=subprocess.PIPE, check=False)
    os.close(write_end)

    assert (whole.returncode, whole.stderr) == (0, "")
    assert (closed.returncode, closed.stderr) == (141, b"")


def test_a_word_does_not_hide_a_stored_judgement(capsys):
    """What is no word after ``report`` is a file, and a file called like a word is reached by its path."""
    assert main(["report", "./benchmark"]) == 3
    assert capsys.readouterr().err.startswith("[report] benchmark: got ")
