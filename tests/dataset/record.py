"""Records what real Fluid's `paddle.dataset` makes of two data homes. Run it with the oracle's interpreter:

    python tests/dataset/homes.py FOLDER
    PYTHONPATH=tests ORACLE/bin/python tests/dataset/record.py FOLDER

The answers become golden.json. Real Fluid's checks of md5 sums are off: the files are not the original ones.
"""

import functools
import json
import os
import sys

import nltk

import paddle.dataset as datasets
from dataset.cases import CASES, answer, arguments

HERE = os.path.dirname(os.path.abspath(__file__))


def use(home):
    """Lets real Fluid read the files of a home."""

    def find(url, module_name, md5sum, save_name=None):
        path = os.path.join(home, module_name, save_name or url.split("/")[-1])
        if not os.path.exists(path):
            raise OSError(path)
        return path

    datasets.common.DATA_HOME = home
    nltk.data.path[:] = [home]
    datasets.common.download = datasets.flowers.download = datasets.voc2012.download = find
    datasets.mq2007.__initialize_meta_info__ = lambda: home
    datasets.movielens.MOVIE_INFO = datasets.uci_housing.UCI_TRAIN_DATA = None  # what it read from another home


def signatures(name):
    """The names and defaults of the arguments of each public function and class of a module."""
    module = getattr(datasets, name)
    found = {}
    for what, value in vars(module).items():
        is_own = getattr(value, "__module__", None) == module.__name__ or isinstance(value, functools.partial)
        if is_own and callable(value) and not what.startswith("_") and what != "unittest":
            found[what] = arguments(value)
    return found


def record(home):
    use(home)
    answers = {}
    for case in sorted(CASES):
        try:
            answers[case] = answer(case, datasets)
        except OSError as error:
            print("{}: not in {}: {}".format(case, os.path.basename(home), error))
    return answers


def by_line(golden):
    """JSON with a case per line."""
    parts = []
    for part, cases in golden.items():
        lines = ["  {}: {}".format(json.dumps(case), json.dumps(cases[case], sort_keys=True)) for case in sorted(cases)]
        parts.append("{}: {{\n{}\n}}".format(json.dumps(part), ",\n".join(lines)))
    return "{{{}}}\n".format(",\n".join(parts))


if __name__ == "__main__":
    homes = os.path.abspath(sys.argv[1])
    os.chdir(homes)  # real Fluid draws pictures into the working directory
    golden = {name: record(os.path.join(homes, name)) for name in ("synthetic", "irregular")}
    golden["signatures"] = {name: signatures(name) for name in [*datasets.__all__, "common"]}
    with open(os.path.join(HERE, "golden.json"), "w") as file:
        file.write(by_line(golden))
