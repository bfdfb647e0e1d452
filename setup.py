from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="lv_fairseq",
    version="0.1.0",
    description="A fairseq plug-in for neural machine translation with very large vocabularies",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["lv_fairseq", "lv_fairseq.*"]),
    python_requires=">=3.9",
    install_requires=[
        # fairseq 0.12.2 does not import on Python 3.11; fairseq-fixed is its main branch with that mended.
        "fairseq-fixed==0.12.3.1; python_version >= '3.11'",
        "fairseq==0.12.2; python_version < '3.11'",
        "numpy>=1.21; python_version >= '3.11'",
        "numpy>=1.21,<2; python_version < '3.11'",
        "matplotlib>=3.7",
        "sacrebleu>=2.0",
        "sacremoses",
        "sentencepiece",
        "sil-thot>=3.4.7",
        "torch>=2.4",
        "tqdm",
    ],
    entry_points={
        "console_scripts": [
            "lv-coverage=lv_fairseq.corpus_coverage.command:main",
            "lv-lexicon=lv_fairseq.lexicon.command:main",
            "lv-partition=lv_fairseq.partitions.command:main",
            "lv-report=lv_fairseq.report.command:main",
        ]
    },
    extras_require={
        "dev": ["hypothesis", "pytest", "pytest-xdist", "ruff", "tensorboardX"],
    },
)
