"""The commands and their options: what ``--help`` prints. The module of a command is imported when it runs.

The class of a command has its arguments and options, its help as docstring, and examples; `COMMANDS` adds the options
that it shares with others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from ..errors import ArgumentError
from ..options.compute import Compute, CutPlanning, Planning, Progress, Threads
from ..options.learning import EM, Chains, Constraints, Keys, Search
from ..options.record import Opt, Record
from ..options.serving import Limits
from ..options.tables import OF_TABLES, FileOptions, ReadOptions, TableOptions

Names = tuple[str, ...]
FILE_HELP = (
    "Network file (.net, .bif, .xdsl, .uai, ...), optionally compressed (.gz, .xz), or the name of a bundled network "
    "such as asia."
)
OUTPUT_OF = "Network file to write; the suffix selects the format."
Interventions = Annotated[str | None, Opt(
    'Column that names the variables that were set in each row: empty, a name, or several as "a;b".',
    "--interventions NAME")]
TABLE = "CSV or Parquet file: one column for each variable."
NUMBERED = "-o, --output PATH"

# Options that several commands share.


class Printed(Record, title="Output"):
    """How results are printed."""

    json: Annotated[bool, Opt("Print the result as JSON.", front=True)] = False


class Numbers(Printed, title="Output"):
    """How results that are numbers are printed."""

    digits: Annotated[int | None, Opt(
        "Significant digits of numbers. Default: 6 on a terminal, all in a pipe or a file.", least=1, most=17)] = None


class Force(Record, title="Output"):
    """Whether files are replaced."""

    force: Annotated[bool, Opt("Replace an existing output.", "-f, --force", front=True)] = False


class Shown(Record, title="Output"):
    """Whether progress is shown."""

    progress: Progress = None


class File(Record):
    """A network."""

    file: Annotated[str, Opt(FILE_HELP, "FILE", complete="networks")]


class WithCodes(Record):
    """The meaning of codes."""

    codes: Annotated[Names, Opt(
        "What codes in evidence and cells mean, such as xray:1=yes,0=no; index: numbers are numbers of states, from 0. "
        "Repeatable. Default: a number is the name of a state.", "--codes NAME:CODE=STATE,...")] = ()


class WithEvidence(File):
    """A network and evidence."""

    evidence: Annotated[Names, Opt(
        "Observed state; several states separated by commas: one of them. Repeatable.",
        "-e, --evidence NAME=STATE", complete="findings")] = ()


class Case(WithCodes, WithEvidence):
    """A network and the evidence of a case."""

    evidence_file: Annotated[str | None, Opt(
        "File with the evidence of one case: lines name=state, JSON, or UAI. -e adds to it.",
        "--evidence-file PATH")] = None


class Targets(Record):
    """The results to compute."""

    target: Annotated[Names, Opt(
        "Variable to compute, or several separated by commas. Repeatable. Default: all.", "-t, --target NAME",
        complete="targets")] = ()


class ChanceOnly(Record):
    """How decisions are read."""

    chance_only: Annotated[bool, Opt(
        "Read what can be read as chance variables: decisions are uniform; utilities and other nodes are left out.",
    )] = False


LOCAL = "backend threads dtype devices progress"


class Workers(Record, title="Computation"):
    """The workers of a cluster."""

    workers: Annotated[int | None, Opt(
        "Number of workers on the cluster. Default: as many as fit.", least=1)] = None


class TableColumns(Record):
    """Which columns are used."""

    columns: Annotated[Names | None, Opt(
        "Columns to use; exclude identifier columns. Repeatable. Default: all.", "--columns A,B,...")] = None


# Queries of one case.


class Query(Targets, Case, Numbers):
    """Compute posterior probabilities given evidence, and queries in text form.

    Without queries, print the posterior of every variable, or of the targets. The evidence of --evidence applies to
    every query.

    Names and states may contain "=" and ",": the longest variable name that matches is used, and a state with exactly
    that name takes precedence over a list of states.
    """

    examples = (
        "jtgpu query asia -e xray=yes -e smoke=no -t lung,bronc",
        'jtgpu query asia "P(lung, bronc | xray=yes)" "MPE(| xray=yes)" "MI(lung)"',
        "jtgpu query asia -e smoke=yes,no --json",
        "jtgpu query asia -e xray=yes -e smoke=yes -t lung --why",
    )
    question: Annotated[Names, Opt(
        'For example "P(a, b | c=x)", "P(a | b, c=x)", "P(a=x)", "H(a)", "MI(a)", "MI(a; b)", "VOI(a)", '
        '"MPE(3 | c=x)", "MAP(a, b | c=x)", "CONFLICT(b=x, c=y)", "IMPORTANCE(a | b=x)", "EFFECT(a; b)", '
        '"ADJUST(a; b)". After the bar also "c={x, y}", "do(c=x)", "soft(c: 0.7, 0.3)", '
        '"likelihood(c: x=0.9, y=0.2)".', "QUERY")] = ()
    why: Annotated[bool, Opt(
        "Print what each finding contributes to each target: Shapley values, which sum to the difference from the "
        "prior, of P(yes) of two states, of the most probable of more, or of the mean of a number.")] = False


class Mpe(Case, Numbers):
    """Find the most probable configuration given evidence, or the K most probable ones.

    Prints one variable per line and one configuration per column, then P(configuration | evidence) and
    ln P(configuration, evidence).
    """

    examples = ("jtgpu mpe asia -e xray=yes -k 3", "jtgpu mpe asia -e xray=yes -t lung,bronc")
    k: Annotated[int, Opt("Number of configurations, best first.", "-k K", least=1)] = 1
    target: Annotated[Names, Opt(
        "Variable to maximize over, or several separated by commas; all others are summed out (marginal MAP, which may "
        "cost far more). Repeatable. Default: all variables.", "-t, --target NAME", complete="targets")] = ()


class Voi(Case, Numbers):
    """Rank variables by value of information: which to observe next.

    Prints for each candidate, best first: the expected reduction of the target's entropy by observing it, the
    expected entropy, both in bits, and the expected probability of the target's most probable state; of a target
    that is a number, the expected standard deviation.
    """

    examples = ("jtgpu voi asia -t lung -e dysp=yes", "jtgpu voi asia -t lung -c smoke,xray")
    variable: Annotated[str | None, Opt("Variable to learn about; also -t.", "TARGET", complete="targets")] = None
    target: Annotated[str | None, Opt("Variable to learn about.", "-t, --target NAME", complete="targets")] = None
    candidate: Annotated[Names, Opt(
        "Variable that could be observed, or several separated by commas. Repeatable. Default: all.",
        "-c, --candidate NAME", complete="targets")] = ()


class Sensitivity(Case, Numbers):
    """Show how P(target | evidence) changes with each parameter of each CPT.

    Prints the most influential parameters with value, derivative, and the probability at (1 - spread) and
    (1 + spread) times the value; the other entries of the row are scaled proportionally. All derivatives are exact and
    come from one computation.
    """

    examples = ("jtgpu sensitivity asia -t lung=yes -e xray=yes -n 5",)
    event: Annotated[str | None, Opt(
        "The variable and state of the probability; also -t.", "NAME=STATE", complete="findings")] = None
    target: Annotated[str | None, Opt(
        "The variable and state of the probability.", "-t, --target NAME=STATE", complete="findings")] = None
    n: Annotated[int, Opt("Number of parameters to print.", "-n N", least=0)] = 20
    spread: Annotated[float, Opt("Change of each parameter, relative to its value.", above=0)] = 0.1


class Decide(WithCodes, WithEvidence, Numbers, Force):
    """Find the policy of a decision network with the highest expected utility.

    Prints what to choose in each situation, or the options of one decision (--option), or what to observe before it
    (--voi). Files of HUGIN, GeNIe, pyAgrum and Netica hold decision networks.
    """

    examples = (
        "jtgpu decide oil.net",
        "jtgpu decide oil.net -e test=yes -e seismic=closed --option drill",
        "jtgpu decide pigs.xdsl --recall --policy policy.csv",
        "jtgpu decide oil.net --voi drill",
    )
    option: Annotated[str | None, Opt(
        "Print the expected utility of each option of this decision.", "--option DECISION")] = None
    voi: Annotated[str | None, Opt(
        "Print by how much observing each variable before this decision raises the utility.",
        "--voi DECISION")] = None
    recall: Annotated[bool, Opt("Let every decision know earlier decisions and what was known at them.")] = False
    restarts: Annotated[int, Opt(
        "Random policies to start from where decisions depend on each other.", least=0)] = 10
    policy: Annotated[str | None, Opt("Write the policy to this CSV file.", "--policy PATH")] = None


CAUSAL = Literal["sets", "identify", "effect"]


class Causal(Numbers, Shown):
    """Answer causal questions: adjustment sets, identification, effects of setting a variable.

    sets: the minimal sets of variables to adjust for, the one of least variance, and a front door. identify: a formula
    of the effect in terms of the measured variables, or why there is none. effect: P(outcome | do(cause)) of a network;
    with cases, estimated from them, with intervals by the bootstrap.

    In place of a network, NET may be a graph in quotes, in which <-> is a hidden common cause.
    """

    examples = (
        "jtgpu causal sets alarm --of HR --on BP --hidden LVFAILURE",
        'jtgpu causal identify "smoke -> tar -> cancer; smoke <-> cancer" --of smoke --on cancer',
        "jtgpu causal effect asia --of smoke --on dysp --given xray=yes",
        "jtgpu causal effect asia cases.csv --of lung --on dysp --hidden smoke --json",
    )
    question: Annotated[CAUSAL, Opt("One of sets, identify, effect.", "QUESTION")]
    file: Annotated[str, Opt(FILE_HELP + " Or a graph such as 'a -> b <-> c'.", "NET", complete="networks")]
    of: Annotated[Names, Opt("The cause, or several separated by commas.", "--of NAME", complete="targets")]
    on: Annotated[Names, Opt("The outcome, or several separated by commas.", "--on NAME", complete="targets")]
    cases: Annotated[str | None, Opt(TABLE + " effect is estimated from it.", "CASES")] = None
    hidden: Annotated[Names, Opt(
        "Variable that is not measured, or several separated by commas. Repeatable.", "--hidden NAME",
        complete="targets")] = ()
    given: Annotated[Names, Opt(
        "What is observed after the intervention; several states separated by commas: one of them. identify needs no "
        "state. Repeatable.", "--given NAME[=STATE]",
        complete="findings")] = ()
    n: Annotated[int, Opt("Number of sets to print.", "-n N", least=1)] = 20
    pseudo_counts: Annotated[float, Opt(
        "Added to each count of the cases.", "--pseudo-counts P", least=0)] = 1.0
    bootstrap: Annotated[int, Opt(
        "Resamples of the cases for intervals of 95 %. 0: none.", "--bootstrap N", least=0)] = 200
    seed: Annotated[int, Opt("Seed of the resamples.", least=0)] = 0


TASKS = "PR, MAR, MPE, MMAP"


class Solve(Printed, Shown):
    """Solve a task of the UAI competitions and write the competitions' solution file.

    The tasks are PR (in log10), MAR, MPE and MMAP. Solutions are exact. If a model does not fit in memory, the command
    reports its width, writes no file and exits with code 3. The environment variables INF_TIME (seconds) and INF_MEMORY
    (gigabytes) set limits.
    """

    examples = ("jtgpu solve model.uai evidence.evid MAR", "jtgpu solve -f model.uai -e evidence.evid -t MPE -o -")
    given: Annotated[Names, Opt(
        f"Files and the task: {TASKS}. Each can be given as an option instead.",
        "MODEL [EVIDENCE [QUERY]] TASK")] = ()
    model: Annotated[str | None, Opt("Model file.", "-f, --model FILE")] = None
    evidence: Annotated[str | None, Opt("Evidence file. Default: no evidence.", "-e, --evidence FILE")] = None
    query: Annotated[str | None, Opt("Query file: the variables of MMAP.", "-q, --query FILE")] = None
    task: Annotated[str | None, Opt(f"{TASKS}.", "-t, --task TASK")] = None
    output: Annotated[str | None, Opt(
        "Solution file, replaced if it exists; - for stdout. Default: ./MODEL.TASK.", "-o, --output FILE")] = None


# Tables of cases.


class Batch(WithCodes, File, Printed):
    """Compute the posteriors of every case in a file.

    Probabilities are in columns named variable=state, means and standard deviations of variables that are numbers in
    number.mean and number.sd. Memory use does not depend on the size of the file. The output
    appears when it is complete; the results of an interrupted run are saved next to it, and --resume continues.
    """

    examples = (
        "jtgpu batch alarm cases.csv -o answers.parquet -t PAP,HR --keep id",
        "jtgpu batch alarm cases.parquet -o answers.csv.gz --labels --resume",
        "jtgpu batch alarm 's3://bucket/cases/*.parquet' -o s3://bucket/out --cluster auto",
    )
    cases: Annotated[str, Opt(
        "CSV (plain, .gz, .zst) or Parquet file, one case per row; on a cluster also a folder, a glob pattern or a "
        "URI.", "CASES")]
    output: Annotated[str, Opt(
        "Output file: .parquet, .csv, .tsv (.csv.gz, .csv.zst); on a cluster also a folder or a URI.",
        "-o, --output OUT")]
    quantiles: Annotated[str | None, Opt(
        "Add these quantiles of variables that are numbers, such as 0.05,0.95.", "--quantiles Q,Q")] = None


QUESTIONS = Literal["filter", "smooth", "predict", "mpe", "fit", "sample", "info", "unroll"]


class Dynamic(WithCodes, Numbers):
    """Compute posteriors of sequences by a dynamic network.

    filter: posteriors in every slice given the evidence up to it. smooth: given the whole sequence. predict: of the
    slices that follow. mpe: the most probable states of all slices together. fit: estimate the CPTs by EM. sample: draw
    sequences, which need no file. info: what the network is. unroll: write the Bayesian network of some slices.

    The file of sequences may be larger than the memory. The output appears when it is complete; the results of an
    interrupted run are saved next to it, and --resume continues.
    """

    examples = (
        "jtgpu dynamic smooth weather.dynamic.json days.csv --id place --time day -t rain",
        "jtgpu dynamic filter ward.xdsl stays.parquet --id patient --time day --at last -o now.parquet",
        "jtgpu dynamic predict ward.xdsl stays.csv --id patient --time day --steps 3 -t stage -o next.csv",
        "jtgpu dynamic mpe ward.xdsl stays.csv --id patient --time day -o stages.csv",
        "jtgpu dynamic fit ward.xdsl stays.csv --id patient --time day --hidden stage -o fitted.dynamic.json",
        "jtgpu dynamic sample ward.xdsl --samples 100 --steps 30 --seed 1 -o stays.csv",
        "jtgpu dynamic unroll weather.dynamic.json --steps 10 -o weather.net",
    )
    question: Annotated[QUESTIONS, Opt(
        "One of filter, smooth, predict, mpe, fit, sample, info, unroll.", "QUESTION")]
    file: Annotated[str, Opt(
        "File of a dynamic network: .dynamic.json, .xdsl, Hugin's .oobn.", "NET", complete="networks")]
    sequences: Annotated[str | None, Opt(
        "CSV (plain, .gz, .zst) or Parquet file with a row for each slice. The rows of a sequence follow each other.",
        "SEQUENCES")] = None
    at: Annotated[Literal["all", "last"], Opt(
        "Answer about all slices, or about the last one of each sequence.")] = "all"
    steps: Annotated[int | None, Opt("Slices to predict, of samples, or of the unrolled network.", least=1)] = None
    samples: Annotated[int, Opt("Sequences that sample draws.", least=0)] = 1
    seed: Annotated[int | None, Opt(
        "Random seed of sample (default: random) and of fit (default: 0).", least=0)] = None
    weights: Annotated[str | None, Opt("Of fit: column of the weights of sequences.", "--weights COLUMN")] = None
    output: Annotated[str | None, Opt(
        "Output file: .parquet, .csv, .tsv (.csv.gz, .csv.zst); of unroll a network. Default: a table on stdout.",
        "-o, --output PATH")] = None


class FitModel(Record, title="Model"):
    """The tables to estimate."""

    pseudo_counts: Annotated[str, Opt(
        "Added to each count: a number, bdeu:ESS, or net:ESS (the network's distribution). 0: maximum likelihood.",
        "--pseudo-counts P", front=True)] = "1"
    hidden: Annotated[Names, Opt(
        "Variable without a column, and its number of states. Repeatable.", "--hidden NAME[=N]", front=True)] = ()
    fixed: Annotated[Names, Opt(
        "Variables whose tables stay those of the network. Repeatable.", "--fixed A,B", complete="targets")] = ()
    tie: Annotated[Names, Opt("Variables that share one table. Repeatable.", "--tie A,B")] = ()


class FitCases(Record, title="Cases"):
    """How the cases are read."""

    weights: Annotated[str | None, Opt("Column of case weights.", "--weights COLUMN")] = None
    missing: Annotated[Literal["em", "error", "drop", "available"], Opt(
        "Rows with missing cells: em uses them exactly, error, drop, or available counts each table over its complete "
        "rows.", "--missing HOW", front=True)] = "em"
    states: Annotated[Literal["given", "data"] | None, Opt(
        "States of the network, or those in the data, sorted. Default: given; data with --bins.")] = None
    continuous: Annotated[Names | None, Opt(
        "What columns of numbers are: gaussian, intervals, or states; of all, or of the named ones.",
        "--continuous KIND|NAME=KIND", front=True)] = None
    bins: Annotated[int | None, Opt(
        "Make N intervals of each column with more than N different numbers.", least=2)] = None
    interventions: Interventions = None


class Fit(WithCodes, File, Printed, Force):
    """Estimate the CPTs of a network from cases.

    Complete cases are counted in one pass. If cells are missing or variables hidden, the EM algorithm uses every case,
    exactly. Ctrl-C writes the network of the last whole iteration, and --resume continues.
    """

    examples = (
        "jtgpu fit alarm cases.csv -o fitted.bif",
        "jtgpu fit asia cases.parquet -o fitted.net --hidden smoke --restarts 10 --pseudo-counts bdeu:10",
        "jtgpu fit asia day1.csv.gz day2.csv.gz -o fitted.net --start given --report fit.json",
        "jtgpu fit patients.net patients.csv -o fitted.mixed.json --continuous bp=gaussian,age=intervals",
        "jtgpu fit alarm cases.parquet -o fitted.net --devices all",
    )
    cases: Annotated[Names, Opt("CSV (plain, .gz, .zst) or Parquet files, or folders of them.", "CASES...")]
    output: Annotated[str, Opt(OUTPUT_OF, "-o, --output OUT")]
    report: Annotated[str | None, Opt("Write a report as JSON.", "--report PATH")] = None
    resume: Annotated[bool, Opt("Continue an interrupted run.")] = False


class Validate(WithCodes, File, Printed, Force):
    """Measure how well a network predicts a variable: accuracy, log loss, AUC, calibration.

    Of a number: root mean square error, R squared, log density and coverage.

    The probabilities of the target are those given all other cells of a case; of a network over time, those of each
    slice given the other variables up to it. Cases whose target is missing are left out.
    """

    examples = (
        "jtgpu validate asia cases.csv -t bronc",
        "jtgpu validate asia cases.csv -t bronc --folds 10 --draw bronc.svg",
        "jtgpu validate ward.xdsl stays.csv --id patient --time day -t stage",
    )
    cases: Annotated[str, Opt(
        "CSV or Parquet file: one column for each variable, one case or slice per row.", "CASES")]
    target: Annotated[str, Opt(
        "The variable to predict from the other columns.", "-t, --target VARIABLE", complete="targets")]
    folds: Annotated[int | None, Opt(
        "Cross-validation: fit the CPTs to the other parts of the file, and predict each of K parts, of sequences if "
        "there are slices. Default: the network as it is predicts all cases.", "--folds K", least=2)] = None
    seed: Annotated[int, Opt("Seed of the random parts.", least=0)] = 0
    skip_impossible: Annotated[bool, Opt(
        "Leave out cases of probability 0 and count them, instead of an error.")] = False
    draw: Annotated[Path | None, Opt(
        "Draw confusion matrix, ROC curves and calibration, or values and intervals of a number, to an .svg or .html "
        "file.")] = None


class Screen(TableColumns, WithCodes, Printed, Force, Shown):
    """Find outlier rows of a table, by nearest-neighbour distance or by likelihood under a network.

    A row's weight is the sum of its distances to its nearest rows; the N rows of largest weight are printed, with the
    nearest other row. Rows are numbered from 0. The result is exact.
    """

    examples = (
        "jtgpu screen cases.csv --net alarm -n 20 --surprise",
        "jtgpu screen sensors.csv -n 100 --metric euclidean --scale std --drop clean.csv",
    )
    data: Annotated[str, Opt("CSV or Parquet file: a row for each case.", "CASES")]
    n: Annotated[int, Opt("Number of outliers.", "-n N", least=1)] = 50
    k: Annotated[int, Opt("Distances that are added; one is to the row itself.", "-k K", least=1)] = 21
    net: Annotated[str | None, Opt(
        "Network: compare the columns that are its variables, by their states.", "--net FILE")] = None
    metric: Annotated[Literal["auto", "euclidean", "manhattan", "hamming", "gower"], Opt(
        "How rows are compared. auto: euclidean for numbers, hamming for states, gower for both.",
        "--metric NAME")] = "auto"
    missing: Annotated[Literal["auto", "ignore", "state", "error"], Opt(
        "Missing cells: ignore (compare the columns that both rows have), state (one more state) or error.",
        "--missing HOW")] = "auto"
    scale: Annotated[Literal["std", "range"] | None, Opt(
        "Divide each column of numbers by its standard deviation (std) or range.", "--scale HOW")] = None
    surprise: Annotated[bool, Opt(
        "Also -ln P(row) under the network of --net, and the least probable cell.")] = False
    every: Annotated[bool, Opt("Compute the weights of all rows; see --output.", "--all")] = False
    output: Annotated[str | None, Opt(
        "File for the outliers, or with --all for all rows, and their weights: .csv, .tsv (.gz) or .parquet.",
        "-o, --output PATH")] = None
    drop: Annotated[str | None, Opt(
        "File for the table without the outliers; its cells are written as they were read.", "--drop PATH")] = None


class Whiten(TableColumns, Printed, Force):
    """Fit autoregressive models to time series, and write residuals or cases over time slices.

    Prints a line for each series: the order of its model, the variance that the model leaves, and the lags whose
    partial autocorrelations are significant. Cases have the columns x[t], x[t-1] ... and can be given to jtgpu learn.
    """

    examples = (
        "jtgpu whiten sensors.csv -o residuals.csv --order bic --lags lags.json",
        "jtgpu whiten sensors.csv -o cases.csv --slices 3",
    )
    data: Annotated[str, Opt("CSV or Parquet file: a column of numbers for each series.", "SERIES")]
    output: Annotated[str | None, Opt(
        "File for the residuals, or with --slices for the cases: .csv, .tsv (.gz) or .parquet.",
        "-o, --output PATH")] = None
    order: Annotated[str, Opt("Order of the models: a number, or chosen by bic or aic.", "--order HOW")] = "bic"
    max_order: Annotated[int, Opt("Highest order.", least=0)] = 16
    time: Annotated[str | None, Opt(
        "Column of times, which must increase. Default: the first column of dates, if there is one.",
        "--time COLUMN")] = None
    slices: Annotated[int | None, Opt(
        "Write cases instead of residuals: each series in N states, now and at the significant lags (at least 1).",
        least=2)] = None
    lags: Annotated[str | None, Opt(
        "JSON file for the lags at which each series depends on its past.", "--lags PATH")] = None
    alpha: Annotated[float, Opt("Probability of listing a lag of a series without memory.")] = 0.05
    threads: Threads = None


class Sample(Case, Printed, Force):
    """Draw exact samples of all variables given evidence, as CSV.

    The first line holds the names of the variables, each further line one sample. Sampling is exact for any
    evidence, however improbable: no sample is rejected or weighted.
    """

    examples = ("jtgpu sample asia 5 -e xray=yes --seed 1", "jtgpu sample asia 1000000 -o cases.csv.gz")
    n: Annotated[int, Opt("Number of samples.", "N", least=0)]
    seed: Annotated[int | None, Opt(
        "Random seed; the same seed gives the same samples. Default: random.", least=0)] = None
    output: Annotated[str | None, Opt(
        "Output file; append .gz to compress. Default: stdout.", "-o, --output PATH")] = None
    numbers: Annotated[bool, Opt("Write state numbers instead of names.")] = False
    inside: Annotated[bool, Opt("Draw numbers inside intervals of variables whose states are intervals.")] = False


# Networks and plans.


class LearnModel(Record, title="Model"):
    """The model to learn."""

    method: Annotated[Literal["auto", "exact", "order", "greedy", "tabu", "mcmc"], Opt(
        "Of the best graph: auto, exact, order, greedy, tabu. Of probabilities: auto, exact, mcmc.", "--method NAME",
        front=True)] = "auto"
    score: Annotated[Literal["bdeu", "bds", "k2", "bdj", "bic", "aic", "bge", "bic-cg"], Opt(
        "Of states: bdeu, bds, k2, bdj, bic, aic; of numbers: bge, bic-cg.", "--score NAME", front=True)] = "bdeu"
    ess: Annotated[float, Opt("Equivalent sample size of bdeu and bds.")] = 1.0
    graph_prior: Annotated[Literal["uniform", "fair", "order"], Opt(
        "Prior weights of graphs: uniform, fair, or order (probabilities only).", "--graph-prior NAME")] = "uniform"
    max_parents: Annotated[int, Opt("Maximum number of parents.", least=0, front=True)] = 4
    seed: Annotated[int, Opt("Random seed of searches and chains.", least=0)] = 0


class LearnTable(Record, title="Columns and states"):
    """How the table is read."""

    missing: Annotated[Literal["error", "drop", "available", "augment", "em"], Opt(
        "Rows with missing cells: error, drop, or available (with --score bic: each family by its known rows); "
        "augment: cells are drawn with the graphs, for probabilities; em: structural EM, for a graph.",
        "--missing HOW", front=True)] = "error"
    states: Annotated[str, Opt(
        "Network file that declares the variables and states, or data: those that occur.",
        "--states NET|data")] = "data"
    exclude: Annotated[Names, Opt(
        "Column to leave out, or several separated by commas. Repeatable.", "--exclude NAME", front=True)] = ()
    columns: Annotated[Names | None, Opt(
        "Column to keep, or several separated by commas; others are left out. Repeatable.", "--columns NAME")] = None
    continuous: Annotated[Names | None, Opt(
        "Column of numbers, or several separated by commas, for --score bge or bic-cg. Default: all, but those of few "
        "whole numbers. Repeatable.", "--continuous NAME|all")] = None
    bins: Annotated[int | None, Opt(
        "Make N intervals of each column with more than N different numbers.", least=2, front=True)] = None
    interventions: Interventions = None


def _threshold(text: str) -> str | float:
    try:
        p = 2.0 if text == "map" else float(text)
    except ValueError:
        p = -1.0
    if text != "map" and not 0.0 <= p <= 1.0:
        raise ArgumentError(f"{text!r} is neither a number from 0 to 1, nor map")
    return text if text == "map" else p


class LearnFiles(Record, title="Probabilities of arcs"):
    """Files of the probabilities of the arcs."""

    edges: Annotated[Path | None, Opt(
        "File to write: the probability of every arc, link and path.", "--edges CSV", front=True)] = None
    draw: Annotated[Path | None, Opt(
        "File for a heat map of the probabilities of all arcs, .svg or .html.")] = None
    draw_network: Annotated[Path | None, Opt(
        "File for a picture of the network with the probabilities of its arcs, .svg or .html.", front=True)] = None
    save: Annotated[Path | None, Opt(
        "File for the whole posterior, which jtgpu.learn.load reads.", "--save NPZ")] = None
    threshold: Annotated[str | float | None, Opt(
        "Network to write: that of the arcs with a probability above P, or map: of the best graph.",
        "--threshold P|map", check=_threshold)] = None
    seconds: Annotated[float | None, Opt(
        "Time that all of it should take at most; with --checkpoint, that Markov chains may run.", "--seconds S",
        front=True, above=0)] = None
    resume: Annotated[bool, Opt("Continue the run of --checkpoint.")] = False


class Learn(Printed, Force):
    """Learn a network's structure from data, with the posterior probability of each arc.

    The graph has the highest score among all graphs (up to 18 variables, or --method exact), or among those that a
    search over orders of the variables finds. CPTs are estimated from the same cases. With any option of uncertainty,
    --method mcmc or --graph-prior order, the probability of every arc is computed: exactly up to 13 variables, by
    Markov chains beyond.
    """

    examples = (
        "jtgpu learn cases.csv -o learned.net",
        "jtgpu learn patients.csv --exclude id,date --bins 5 --draw-network network.svg",
        "jtgpu learn patients.csv --exclude id,date --score bic-cg --missing drop -o patients.mixed.json",
        "jtgpu learn cases.csv --tier asia,smoke --tier xray,dysp --require smoke,lung --json",
        "jtgpu learn cases.csv -o learned.net --edges edges.csv --draw edges.svg --save posterior.npz --seconds 60",
    )
    data: Annotated[str, Opt(TABLE, "DATA")]
    output: Annotated[str | None, Opt(OUTPUT_OF, "-o, --output PATH")] = None


class LearnConstraints(Constraints, title="Constraints"):
    """Which graphs are possible."""

    tiers_file: Annotated[Path | None, Opt(
        "Text file with a tier on each line: names separated by commas; # begins a comment.", "--tiers FILE")] = None


class Explore(Printed, Force, Shown):
    """Explore a table: types, gaps, bins, a network with its certainty, accuracy and page.

    Identifiers, dates, constant columns and free text are left out. The accuracy is that of networks that the predicted
    rows did not help to learn.
    """

    examples = (
        "jtgpu explore cases.csv",
        "jtgpu explore patients.csv --target outcome --exclude id,date -o patients.net",
        "jtgpu explore patients.csv --continuous -t pressure -o patients.mixed.json --draw patients.svg",
        "jtgpu explore cases.parquet --bins 3 --no-serve --json",
    )
    data: Annotated[str, Opt(TABLE, "DATA")]
    target: Annotated[str | None, Opt(
        "Column whose prediction is judged. Default: the last one that is kept.", "-t, --target NAME")] = None
    exclude: Annotated[Names, Opt(
        "Column to leave out, or several separated by commas. Repeatable.", "--exclude NAME")] = ()
    bins: Annotated[int, Opt("Intervals of each column with more different numbers.", least=2)] = 5
    continuous: Annotated[bool, Opt("Learn from columns of numbers as they are, without intervals.")] = False
    seconds: Annotated[float, Opt(
        "Time that all of it should take at most. 0: no limit, and no probabilities of arcs.", "--seconds S",
        least=0)] = 15.0
    seed: Annotated[int, Opt("Random seed.", least=0)] = 0
    output: Annotated[str | None, Opt(OUTPUT_OF, "-o, --output PATH")] = None
    draw: Annotated[Path | None, Opt(
        "File for a picture of the network with the probabilities of its arcs, .svg or .html.")] = None
    serve: Annotated[bool | None, Opt(
        "Show the network on its page until Ctrl-C. Default: if stdout is a terminal.", "--serve/--no-serve")] = None


class Info(ChanceOnly, Printed):
    """Inspect a network file and report anything repaired while reading.

    Of a file with nodes that cannot be read (equations, continuous or dynamic nodes, objects), list all of them.

    With --system, report the installation and the machine instead, as text that can be pasted into an issue.
    """

    examples = ("jtgpu info alarm", "jtgpu info alarm --json", "jtgpu info --system")
    file: Annotated[str | None, Opt(FILE_HELP, "FILE", complete="networks")] = None
    system: Annotated[bool, Opt("Report versions, processors, GPUs, caches and missing packages instead.")] = False


class Convert(ChanceOnly, Printed, Force):
    """Convert a network to another format.

    Whatever the format cannot represent (attributes, names, digits, comments) is reported on stderr. Before the file is
    written, its text is parsed again and compared with the network.
    """

    examples = ("jtgpu convert asia asia.xdsl", "jtgpu convert asia -o asia.bif.gz --force")
    file: Annotated[str, Opt(
        "Network file (.net, .bif, ...), optionally compressed (.gz, .xz), or the name of a bundled network.", "FROM",
        complete="networks")]
    to: Annotated[str | None, Opt(
        "Output file; the suffix selects the format, append .gz or .xz to compress.", "TO")] = None
    output: Annotated[str | None, Opt("The same as TO.", "-o, --output PATH")] = None
    strict: Annotated[bool, Opt("Fail if the format cannot represent everything in the network.")] = False
    zero_rows: Annotated[Literal["error", "uniform"], Opt("How to treat a row of zeros.", "--zero-rows HOW")] = "error"


class Show(Targets, Case, Force):
    """Draw a network with its posteriors and evidence, or its junction tree, as SVG or HTML.

    Networks of more variables than --most are drawn in part: around the evidence and the targets, or else around the
    variable with the most neighbours. --target draws a ring. Of a network over time the first slices are drawn.
    """

    examples = (
        "jtgpu show asia -e xray=yes -o asia.svg",
        "jtgpu show munin --around R_MEDD2_LD_WD --hops 2 -o part.html",
        "jtgpu show alarm --tree -o tree.svg",
    )
    around: Annotated[Names, Opt(
        "Draw the neighbourhood of this variable, or of several separated by commas. Repeatable.", "--around NAME",
        complete="targets")] = ()
    hops: Annotated[int, Opt("Arcs from --around to the farthest variable.", least=0)] = 2
    most: Annotated[int, Opt("Variables, or cliques, to draw.", least=1)] = 150
    tree: Annotated[bool, Opt("Draw the junction tree: cliques and separators.")] = False
    names: Annotated[bool, Opt("Draw names without posteriors.")] = False
    output: Annotated[Path | None, Opt(
        "The .svg or .html file to write. Default in a pipe: SVG to stdout.", "-o, --output PATH")] = None


class Address(Record, title="Address"):
    """Where the server listens."""

    host: Annotated[str, Opt(
        "Address to listen at. Clients on other machines need a token, and a name that is an --allow-host.",
        "--host ADDRESS", front=True)] = "127.0.0.1"
    port: Annotated[int, Opt("Port to listen at; 0: a free one.", least=0, most=65535, front=True)] = 8080
    open: Annotated[bool, Opt("Open the page in a browser.", "--open/--no-open", front=True)] = False
    workers: Annotated[int, Opt("Processes that share the port.", least=1)] = 1
    grace: Annotated[float, Opt("Time to finish requests at the end.", "--grace SECONDS", least=0)] = 10.0


class Access(Record, title="Access"):
    """Who has access, and to what."""

    token: Annotated[str | None, Opt("Token of clients. Default for other machines: new.", "--token TEXT")] = None
    token_file: Annotated[Path | None, Opt("File with the token.")] = None
    no_token: Annotated[bool, Opt("No token; refused where other machines reach the server.")] = False
    allow_origin: Annotated[Names, Opt("Site whose pages may send requests. Repeatable.", "--allow-origin URL")] = ()
    allow_host: Annotated[Names, Opt("Name of this server in requests. Repeatable.", "--allow-host NAME")] = ()
    embed: Annotated[str, Opt("Site that may show the page in a frame.", "--embed URL")] = ""
    api_only: Annotated[bool, Opt("Serve no page.")] = False
    page: Annotated[Path | None, Opt("JSON file of a form to show on the page.")] = None
    read_only: Annotated[bool, Opt("Accept no uploads.", front=True)] = False


class Serve(Printed):
    """Serve networks over HTTP, with a page for a browser, until Ctrl-C.

    Prints the address once every network is planned, compiled and warmed up. Listens at this machine only, unless
    --host names another address; then clients need a token, which is part of the printed address.
    """

    examples = (
        "jtgpu serve alarm --open",
        "jtgpu serve nets/asia.net --name big=models/munin.net.xz --port 0",
        "jtgpu serve alarm --host 0.0.0.0 --token-file token.txt --workers 4 --log json",
    )
    files: Annotated[Names, Opt(
        "Network files or names of bundled networks; each is served under the name of its file.", "NET...",
        complete="networks")] = ()
    name: Annotated[Names, Opt("A network under another name. Repeatable.", "--name NAME=FILE")] = ()


class Rank(Printed, Force):
    """Rank the variables of a network by betweenness: the share of shortest paths through each.

    Betweenness of an edge (--edges) is the share of shortest paths along it. All values are exact unless --samples is
    given.
    """

    examples = (
        "jtgpu rank alarm --skeleton --top 5",
        "jtgpu rank munin --skeleton -o munin.svg",
        "jtgpu rank roads.csv --weight km --edges --samples 500",
    )
    file: Annotated[str, Opt(
        "A network (its arcs), or a .csv, .tsv (.gz) or .parquet file with an edge in each row: columns from and to, "
        "or else the first two.", "FILE")]
    edges: Annotated[bool, Opt("Rank edges instead of variables.")] = False
    skeleton: Annotated[bool, Opt("Ignore the direction of a network's arcs.")] = False
    directed: Annotated[bool, Opt("Edges of a table have a direction.")] = False
    weight: Annotated[str | None, Opt(
        "Column of a table with the lengths of the edges.", "--weight COLUMN")] = None
    samples: Annotated[int | None, Opt(
        "Estimate from K random sources instead of all.", "--samples K", least=2)] = None
    seed: Annotated[int, Opt("Seed of the random sources.", least=0)] = 0
    published: Annotated[bool, Opt(
        "Time Wolonciej's GPU program (streams, neighbours, blocks) next to this one instead.")] = False
    top: Annotated[int, Opt("Rows to print.", least=1)] = 20
    output: Annotated[Path | None, Opt(
        "Draw the network to an .svg or .html file, with circles of the size of the betweenness.",
        "-o, --output PATH")] = None


class Plan(File, Printed, Force, Shown):
    """Choose an elimination order and print the cost of propagation. No table is allocated.

    If the tree of the whole network does not fit in memory, questions are planned one by one, and the output is the
    reason.

    With --order best, the output also lists how the cost decreased during the search; Ctrl-C stops the search and
    uses the best order found so far.
    """

    examples = (
        "jtgpu plan munin1 --order best --order-time 10",
        "jtgpu plan munin1 --order best -o munin1.plan",
        "jtgpu plan munin1 --plan munin1.plan",
    )
    output: Annotated[Path | None, Opt(
        "Save the plan in this file, for the option --plan of all commands and jtgpu.NetworkPlan.load.",
        "-o, --output PATH")] = None
    plot: Annotated[Path | None, Opt("Plot cost against search time into this .png, .svg or .pdf file.")] = None


# Speed.


class Time(Printed):
    """Time reading, planning, compiling and propagating.

    One propagation takes one case and computes the posteriors of all variables. A network that fails is reported on
    stderr and the others continue; the exit code is that of the first failure.

    With --backend indexed, measure every row of the published table of times and print it next to the published
    figures.
    """

    examples = ("jtgpu time nets --runs 10 --json > times.json", "jtgpu time munin1 --observed 10 --threads 1")
    files: Annotated[Names, Opt(
        "Network files, or folders of them. Default: the seven networks of the published table.", "FILE|FOLDER")] = ()
    runs: Annotated[int, Opt("Timed propagations, after one that is not timed.", least=1)] = 5
    observed: Annotated[float, Opt("Share of the variables to observe.", "--observed PERCENT", least=0, most=100)] = 0.0
    seed: Annotated[int, Opt("Random seed of the observations.", least=0)] = 0
    csv: Annotated[bool, Opt("Print comma-separated values.")] = False
    save: Annotated[Path | None, Opt(
        "With --backend indexed: save times.json, .csv and .rst in this folder.", "--save DIR")] = None
    plot: Annotated[Path | None, Opt(
        "With --backend indexed: draw the published figures in this folder.", "--plot DIR")] = None


class Warmup(Printed, Shown):
    """Compile the loops of the CPU backend before the first query, for container images.

    A wheel for this Python and processor contains them, and nothing is done. Otherwise they are compiled on all cores,
    in a minute or two, and cached in JTGPU_CACHE_DIR, the package's folder or the user's cache folder. Run it on the
    kind of processor, and with the environment variables, that later processes have.
    """

    examples = ("jtgpu warmup",)


QUERIES, TABLES, NETWORKS, SPEED = "Queries of one case", "Tables of cases", "Networks and plans", "Speed"
BUT_DEVICES = "backend threads dtype progress"
FITS = "start zeros restarts seed iterations tolerance accelerate stepwise standard_errors"
ONE_BY_ONE = "backend threads progress"
OF_FIT = "backend=auto|cpu|gpu|reference threads devices progress cluster"
OF_LEARN = "backend=auto|cpu|gpu threads devices cluster memory_limit progress"


class Command(NamedTuple):
    """A command: its panel of ``jtgpu --help``, its record, and those that it shares, with the fields it offers."""

    panel: str
    record: type[Record]
    shared: dict[type[Any], str] = {}  # noqa: RUF012 (read only). No names: all fields
    module: str = ""  # Default: of the name of the command


COMMANDS = {
    "query": Command(QUERIES, Query, {CutPlanning: "", Compute: LOCAL}),
    "mpe": Command(QUERIES, Mpe, {Planning: "", Compute: ONE_BY_ONE}, "explain"),
    "voi": Command(QUERIES, Voi, {Planning: "", Compute: BUT_DEVICES}, "explain"),
    "sensitivity": Command(QUERIES, Sensitivity, {Planning: "", Compute: ONE_BY_ONE}, "explain"),
    "decide": Command(QUERIES, Decide),
    "causal": Command(QUERIES, Causal, {ReadOptions: OF_TABLES}),
    "solve": Command(QUERIES, Solve, {
        Planning: "order plan memory_limit max_table order_seed no_cache", Compute: "backend"}),
    "batch": Command(TABLES, Batch, {
        TableOptions: "", FileOptions: "", ReadOptions: OF_TABLES, Planning: "", Compute: LOCAL + " cluster",
        Workers: ""}),
    "dynamic": Command(TABLES, Dynamic, {
        Keys: "", TableOptions: "targets evidence_columns labels log_evidence on_error",
        FileOptions: "resume force compression chunk escape_formulas", ReadOptions: OF_TABLES, FitModel: "",
        EM: "start zeros restarts iterations tolerance accelerate", Compute: ONE_BY_ONE}),
    "fit": Command(TABLES, Fit, {
        FitModel: "", EM: FITS, FitCases: "", ReadOptions: OF_TABLES + " chunk", Compute: OF_FIT, Workers: ""}),
    "validate": Command(TABLES, Validate, {Keys: "", ReadOptions: OF_TABLES}),
    "screen": Command(TABLES, Screen, {ReadOptions: OF_TABLES, Compute: "threads devices cluster"}, "preprocess"),
    "whiten": Command(TABLES, Whiten, {ReadOptions: OF_TABLES}, "preprocess"),
    "sample": Command(TABLES, Sample, {
        FileOptions: "escape_formulas", Planning: "", Compute: ONE_BY_ONE}),
    "learn": Command(NETWORKS, Learn, {
        LearnModel: "", LearnTable: "", LearnConstraints: "", Search: "candidates start", LearnFiles: "", Chains: "",
        ReadOptions: OF_TABLES + " constant", Compute: OF_LEARN}),
    "explore": Command(NETWORKS, Explore, {ReadOptions: OF_TABLES}),
    "info": Command(NETWORKS, Info),
    "convert": Command(NETWORKS, Convert, {}, "export"),
    "show": Command(NETWORKS, Show, {Planning: "", Compute: LOCAL}, "export"),
    "serve": Command(NETWORKS, Serve, {Address: "", Access: "", Limits: "", CutPlanning: "", Compute: LOCAL}),
    "rank": Command(NETWORKS, Rank, {ReadOptions: OF_TABLES, Compute: "threads"}),
    "plan": Command(NETWORKS, Plan, {CutPlanning: ""}),
    "time": Command(SPEED, Time, {Planning: "", Compute: ONE_BY_ONE}, "speed"),
    "warmup": Command(SPEED, Warmup, {}, "speed"),
}
