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
# The second lock: PostgreSQL and Redis are spoken to without further packages.
COPY requirements.lock requirements-cluster.lock ./
RUN /opt/odradek/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --no-compile \
        --require-hashes -r requirements.lock -r requirements-cluster.lock
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

# SPARK is a directory that `odradek spark prepare` filled elsewhere, where the build has one (buildah's --volume); else
# it is downloaded, from whom SSL_CERT_FILE trusts.
FROM build AS spark
RUN apt-get install -y -qq --no-install-recommends ca-certificates >/dev/null
ARG SPARK=
ARG SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
RUN ODRADEK_SPARK_HOME=/opt/odradek/spark /opt/odradek/bin/odradek spark prepare --data /tmp ${SPARK:+--from "$SPARK"} \
    && chmod -R a+rX /opt/odradek/spark

# Bytecode that is not compared with its sources' times, which not every copying keeps.
FROM build AS trimmed
COPY packaging packaging
RUN cp packaging/container/broker.properties /opt/odradek/ \
    && python3 packaging/trimming.py /opt/odradek/lib/python3.11/site-packages pip \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/odradek/lib

FROM system AS bare
COPY packaging/container/bare.sh /tmp/
RUN sh /tmp/bare.sh

# Before it is bare: Java's packages are installed with the help of Debian's Perl.
FROM system AS bare-with-java
RUN mkdir -p /usr/share/man/man1 \
    && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless procps >/dev/null
COPY packaging/container/bare.sh /tmp/
RUN sh /tmp/bare.sh

FROM scratch AS settings
ENV PATH=/opt/odradek/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    ODRADEK_DATA=/data \
    ODRADEK_BROKER_CONFIG=/opt/odradek/broker.properties \
    ODRADEK_BOOTSTRAP=127.0.0.1:19092 \
    ODRADEK_WEB=0.0.0.0:8080 \
    ODRADEK_OPEN=no
EXPOSE 9092 19092 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s CMD ["python", "-P", "-m", "appliance.healthcheck"]
ENTRYPOINT ["odradek"]
CMD ["serve"]

FROM settings AS slim
COPY --from=bare / /
COPY --from=trimmed /opt/odradek /opt/odradek
USER odradek
WORKDIR /data
VOLUME /data

FROM settings AS full
COPY --from=bare-with-java / /
COPY --from=trimmed /opt/odradek /opt/odradek
COPY --from=spark /opt/odradek/spark /opt/odradek/spark
ENV ODRADEK_SPARK_HOME=/opt/odradek/spark
USER odradek
WORKDIR /data
VOLUME /data

# What `docker build .` makes.
FROM slim
