# One image with two entry points: `deathless` (a replica, and the client's tools) and `deathless-operator`; and, as the
# target `driver`, the same with Java and PySpark, for drivers of pipelines.
# Needs nothing of the outside at run time: no pip, a user without rights, a root file system that may be read-only.

# ---- the locked requirements, apart from our code, so that a change of code repeats the last steps alone
FROM python:3.11-slim-bookworm AS requirements
ENV PIP_NO_INPUT=1 PIP_PROGRESS_BAR=off PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv --without-pip /opt/deathless
COPY requirements-image.txt /build/
# Byte code that is never compared with its source: a layer has no reliable times of modification. Of pyarrow, what reads
# or serves by the network is left out: nothing of ours uses it.
RUN python3 -m pip --python /opt/deathless/bin/python install --no-cache-dir --no-compile --no-deps --require-hashes --only-binary :all: \
      -r /build/requirements-image.txt \
 && rm -rf /opt/deathless/lib/python3.11/site-packages/pyarrow/*flight* /opt/deathless/lib/python3.11/site-packages/pyarrow/*s3* \
      /opt/deathless/lib/python3.11/site-packages/pyarrow/tests /opt/deathless/lib/python3.11/site-packages/pyarrow/include \
 && find /opt/deathless/lib -name '*.pyx' -o -name '*.pxd' -o -name '*.[ch]' -o -name '*.pyi' | xargs rm -f \
 && /opt/deathless/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/deathless/lib

# ---- our two packages, as a wheel installed below /out
FROM requirements AS code
COPY requirements-build.txt /build/
RUN python3 -m venv --without-pip /opt/build \
 && python3 -m pip --python /opt/build/bin/python install --no-cache-dir --no-deps --require-hashes -r /build/requirements-build.txt
WORKDIR /build
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY runtime/deathless runtime/deathless
COPY operator/deathless_operator operator/deathless_operator
COPY docs/errors docs/errors
RUN /opt/build/bin/python -m hatchling build -t wheel -d /wheel \
 && python3 -m pip --python /opt/deathless/bin/python install --no-cache-dir --no-compile --no-deps --no-index \
      --root /out /wheel/*.whl \
 && /opt/deathless/bin/python -m compileall -q --invalidation-mode unchecked-hash -s /out /out

# ---- Java and PySpark, for the target `driver` alone
FROM python:3.11-slim-bookworm AS java
# Spark needs what java.se has, but for a screen; the JDK is left behind.
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jdk-headless binutils \
 && jlink --output /opt/java --strip-debug --strip-native-debug-symbols exclude-debuginfo-files --no-man-pages \
      --no-header-files --compress=2 --include-locales en \
      --add-modules java.se,jdk.charsets,jdk.crypto.ec,jdk.incubator.vector,jdk.jfr,jdk.localedata,jdk.management,jdk.management.agent,jdk.naming.dns,jdk.security.auth,jdk.security.jgss,jdk.unsupported,jdk.zipfs

FROM requirements AS spark
COPY requirements-spark.txt /build/
# PySpark comes as source, whose jars pip unpacks. Left out is what no driver of ours asks for: Hive, executors in pods,
# Spark Connect, Scala's shell; and RocksDB for other systems.
RUN apt-get update && apt-get install -y --no-install-recommends zip \
 && python3 -m pip --python /opt/deathless/bin/python install --no-cache-dir --no-compile --no-deps --require-hashes --root /spark \
      -r /build/requirements-spark.txt \
 && cd /spark/opt/deathless/lib/python3.11/site-packages/pyspark \
 && rm -rf examples data R licenses python/test_support sbin jars/connect-repl jars/*hive*.jar jars/derby*.jar jars/*kubernetes*.jar \
      jars/spark-connect_*.jar jars/spark-repl_*.jar jars/scala-compiler-*.jar \
 && zip -q -d jars/rocksdbjni-*.jar '*-osx-*' '*-win64*' '*-ppc64le*' '*-s390x*' '*-riscv64*' '*-linux32*' '*-musl*' \
 && /opt/deathless/bin/python -m compileall -q --invalidation-mode unchecked-hash -s /spark /spark

# ---- what is shipped
FROM python:3.11-slim-bookworm AS deathless
# libxxhash0: check bytes of what programs in other languages are given (shell/foreign/check_bytes).
# nft: the drill's agent cuts and heals a pod's links with it (nsenter comes with the base).
RUN apt-get update \
 && apt-get install -y --no-install-recommends libxxhash0 nftables \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/ldconfig /var/cache/debconf /var/log/* \
      /usr/share/doc /usr/share/man \
 && echo 'deathless:x:65532:65532:Deathless:/home/deathless:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'deathless:x:65532:' >> /etc/group \
 && mkdir -p /home/deathless /app \
 && rm -rf /usr/lib/python3/dist-packages/pip* /usr/lib/python3/dist-packages/setuptools* \
      /usr/lib/python3/dist-packages/wheel* /usr/lib/python3/dist-packages/pkg_resources \
      /usr/local/lib/python3.11/site-packages/pip* /usr/local/lib/python3.11/site-packages/setuptools* \
      /usr/local/lib/python3.11/site-packages/wheel* /usr/local/lib/python3.11/site-packages/pkg_resources \
      /usr/bin/pip* /usr/local/bin/pip*
COPY --from=requirements /opt/deathless /opt/deathless
COPY --from=code /out/ /
# Modules of services lie in /app; PYTHONSAFEPATH keeps the working directory off the search path.
ENV PATH=/opt/deathless/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONPATH=/app PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/home/deathless
WORKDIR /app
USER 65532:65532
ENTRYPOINT ["deathless"]
CMD ["--help"]

# ---- a driver of a pipeline: `--target driver`
FROM deathless AS driver
COPY --from=java /opt/java /opt/java
COPY --from=spark /spark/ /
ENV JAVA_HOME=/opt/java PATH=/opt/deathless/bin:/opt/java/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# ---- without a target
FROM deathless
