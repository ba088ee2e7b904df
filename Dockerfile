# One Headrace node. It takes the variables of the usual Kafka images: docs/containers.md.
FROM python:3.11-slim

WORKDIR /opt/headrace
COPY pyproject.toml hatch_build.py requirements.lock README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir --constraint requirements.lock ".[zookeeper]" \
 && useradd --uid 1000 --no-create-home headrace \
 && install --directory --owner=headrace --group=headrace --mode=0700 /var/lib/kafka/data

# Same data directory and user id as the images it replaces, so that their volumes fit.
# No listener has authentication yet: publish ports only where you trust everybody.
ENV KAFKA_LOG_DIRS=/var/lib/kafka/data \
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    HEADRACE_LISTENERS_ALLOW_ANONYMOUS=true \
    HEADRACE_METRICS_PORT=9404

USER headrace
VOLUME /var/lib/kafka/data
EXPOSE 9092 29092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s CMD ["python", "-c", \
  "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['HEADRACE_METRICS_PORT'] + '/readyz', timeout=2)"]
ENTRYPOINT ["headrace", "serve", "--from-env"]
