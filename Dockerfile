# One Headrace node. It accepts the variables of the usual Kafka images: docs/containers.md.
# The slim image has no compiler, so the kernels are compiled in another one; without them the build fails.
# A tag may move. To build from exactly the same images again, pin both by digest:
#   docker buildx imagetools inspect python:3.11-bookworm       (prints the digest)
#   docker build --build-arg PYTHON_IMAGE=python:3.11-bookworm@sha256:… \
#                --build-arg PYTHON_SLIM_IMAGE=python:3.11-slim-bookworm@sha256:… .
ARG PYTHON_IMAGE=python:3.11-bookworm
ARG PYTHON_SLIM_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE} AS build

WORKDIR /source
COPY pyproject.toml hatch_build.py requirements.lock README.md LICENSE ./
COPY src ./src
ENV HEADRACE_REQUIRE_KERNELS=1
RUN python -m venv /opt/headrace
# pip takes no constraints with hashes for a project of a directory, so the versions alone hold here.
RUN sed --expression='/--hash=/d' --expression='s/ *\\$//' requirements.lock > versions.txt \
 && /opt/headrace/bin/pip install --no-cache-dir --constraint versions.txt ".[zookeeper]"

FROM ${PYTHON_SLIM_IMAGE}

COPY --from=build /opt/headrace /opt/headrace
RUN /opt/headrace/bin/python -c "from headrace.kernels.library import load_library as load; assert load(), 'no kernels'"
# Kafka's tools by their names, in every place where the usual images have them.
RUN mkdir -p /opt/kafka/bin \
 && for tool in kafka-topics kafka-console-producer kafka-console-consumer kafka-consumer-groups; do \
      ln -s /opt/headrace/bin/headrace /usr/local/bin/$tool; \
      ln -s /opt/headrace/bin/headrace /usr/local/bin/$tool.sh; \
      ln -s /opt/headrace/bin/headrace /opt/kafka/bin/$tool.sh; \
    done
RUN useradd --uid 1000 --no-create-home headrace \
 && install --directory --owner=headrace --group=headrace --mode=0700 /var/lib/kafka/data

# More than one core: `docker run … headrace --cores auto`, and publish a port for each core (docs/containers.md).
# Same data directory and user id as the images it replaces, so that their volumes fit.
# Listeners have no login unless settings ask for one: whoever runs the image has to set HEADRACE_LISTENERS_ALLOW_ANONYMOUS=true.
ENV PATH=/opt/headrace/bin:$PATH \
    KAFKA_LOG_DIRS=/var/lib/kafka/data \
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    HEADRACE_METRICS_PORT=9404

USER headrace
VOLUME /var/lib/kafka/data
EXPOSE 9092 29092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=40s CMD ["python", "-c", \
  "import os, ssl, urllib.request as r; tls = os.environ.get('HEADRACE_METRICS_SECURITY_PROTOCOL') == 'SSL'; \
  r.urlopen('http' + 's' * tls + '://127.0.0.1:' + os.environ['HEADRACE_METRICS_PORT'] + '/readyz', timeout=2, \
  context=ssl._create_unverified_context() if tls else None)"]
ENTRYPOINT ["headrace", "serve", "--from-env"]
