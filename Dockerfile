# Odradek without Spark; with Spark and Java, for reports: docker build --target full .
# BASE is a Debian 12. Where none can be pulled, one of debootstrap does (docs/container.md).
ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${BASE} AS system
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends python3 >/dev/null \
    && useradd --uid 1000 --create-home --shell /usr/sbin/nologin odradek \
    && install --directory --owner odradek --group odradek /data

FROM system AS build
RUN apt-get install -y -qq --no-install-recommends gcc libc6-dev python3-dev python3-venv >/dev/null
WORKDIR /build
RUN python3 -m venv /opt/odradek
COPY requirements.lock .
RUN /opt/odradek/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --no-compile \
        --require-hashes -r requirements.lock
COPY pyproject.toml setup.py README.md ./
COPY appliance appliance
COPY broker broker
COPY dashboard dashboard
COPY spark_tasks spark_tasks
COPY templates templates
COPY static static
# What `odradek version` tells.
ARG COMMIT=
RUN PYTHONPATH=/build /opt/odradek/bin/python -P -m broker.compiled.build \
    && ODRADEK_BUILD_COMMIT=${COMMIT} /opt/odradek/bin/pip install --quiet --no-cache-dir \
        --disable-pip-version-check --no-compile --no-deps --no-build-isolation .

FROM build AS spark
RUN ODRADEK_SPARK_HOME=/opt/odradek/spark /opt/odradek/bin/odradek spark prepare --data /tmp \
    && chmod -R a+rX /opt/odradek/spark

# Bytecode that is not compared with its sources' times, which not every copying keeps.
FROM build AS trimmed
COPY packaging packaging
RUN cp packaging/container/broker.properties /opt/odradek/ \
    && python3 packaging/trimming.py /opt/odradek/lib/python3.11/site-packages pip \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/odradek/lib

FROM system AS bare
RUN python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /usr/lib/python3.11 \
    && rm -rf /usr/share/doc /usr/share/man /usr/share/info /usr/share/locale /usr/share/zoneinfo \
        /usr/share/bash-completion /usr/share/lintian /usr/share/perl5 \
        /usr/lib/python3.11/test /usr/lib/python3.11/lib2to3 /usr/lib/python3.11/pydoc_data \
        /usr/lib/*-linux-gnu/gconv ~/.cache \
    && find /var/cache /var/lib/apt/lists /var/log /tmp -mindepth 1 -delete \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} +

FROM scratch AS slim
COPY --from=bare / /
COPY --from=trimmed /opt/odradek /opt/odradek
ENV PATH=/opt/odradek/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    ODRADEK_DATA=/data \
    ODRADEK_BROKER_CONFIG=/opt/odradek/broker.properties \
    ODRADEK_BOOTSTRAP=127.0.0.1:19092 \
    ODRADEK_WEB=0.0.0.0:8080 \
    ODRADEK_OPEN=no
USER odradek
WORKDIR /data
VOLUME /data
EXPOSE 9092 19092 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s CMD ["python", "-P", "-m", "appliance.healthcheck"]
ENTRYPOINT ["odradek"]
CMD ["serve"]

FROM slim AS full
USER root
RUN mkdir -p /usr/share/man/man1 /var/cache/apt/archives/partial /var/lib/apt/lists/partial \
    && apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless procps >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/* /usr/share/man /usr/share/doc
COPY --from=spark /opt/odradek/spark /opt/odradek/spark
ENV ODRADEK_SPARK_HOME=/opt/odradek/spark
USER odradek

# What `docker build .` makes.
FROM slim
