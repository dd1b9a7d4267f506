# Odradek without Spark: about the size of Python and its packages. The image with Spark and Java, for
# reports: docker build --target full .
FROM python:3.11-slim AS build
WORKDIR /build
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends gcc libc6-dev
RUN python -m venv /opt/odradek
COPY requirements.lock .
RUN /opt/odradek/bin/pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes -r requirements.lock
COPY pyproject.toml README.md ./
COPY appliance appliance
COPY broker broker
COPY dashboard dashboard
COPY spark_tasks spark_tasks
RUN /opt/odradek/bin/pip install --no-cache-dir --disable-pip-version-check \
        --no-deps --no-build-isolation . \
    && /opt/odradek/bin/python -P -m broker.compiled.build

FROM python:3.11-slim AS slim
RUN useradd --uid 1000 --create-home odradek \
    && install --directory --owner odradek --group odradek /data
COPY --from=build /opt/odradek /opt/odradek
COPY manage.py /opt/odradek/share/odradek/
COPY templates /opt/odradek/share/odradek/templates
COPY static /opt/odradek/share/odradek/static
ENV PATH=/opt/odradek/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    ODRADEK_DATA=/data \
    ODRADEK_LISTEN=0.0.0.0:9092 \
    ODRADEK_WEB=0.0.0.0:8080
USER odradek
WORKDIR /data
VOLUME /data
EXPOSE 9092 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=15s --start-period=60s \
    CMD odradek status --quiet >/dev/null || exit 1
ENTRYPOINT ["odradek"]
CMD ["serve"]

FROM slim AS full
USER root
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends default-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
ENV ODRADEK_SPARK_HOME=/opt/odradek/spark
RUN odradek spark prepare --data /tmp && chmod -R a+rX /opt/odradek/spark
USER odradek

# What `docker build .` makes.
FROM slim
