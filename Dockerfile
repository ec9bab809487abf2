# syntax=docker/dockerfile:1
# The page with its packages: docker compose --profile gpu up, or --profile cpu (see compose.yaml).
# The default PyTorch needs a driver for CUDA 13; for an older one: --build-arg TORCH=cu126.
FROM debian:bookworm-slim@sha256:7b140f374b289a7c2befc338f42ebe6441b7ea838a042bbd5acbfca6ec875818
# hadolint ignore=DL3008
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \
    rm -f /etc/apt/apt.conf.d/docker-clean \
    && apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates git python3 python3-venv
WORKDIR /app
ARG TORCH=default
# The packages come before the source, so that a change of the source does not install them again.
COPY setup_venv.sh requirements.txt requirements.lock ./
RUN --mount=type=cache,target=/root/.cache/pip \
    touch pyproject.toml && sed -i '/^-e /d' requirements.txt \
    && TORCH="$TORCH" bash -c '. ./setup_venv.sh && setup_venv'
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip TORCH="$TORCH" bash -c '. ./setup_venv.sh && setup_venv'
RUN useradd --create-home --uid 1000 studio && install -d -o studio /workspace
USER 1000
VOLUME /workspace
EXPOSE 7863
# The page's sign-in answers without a password.
HEALTHCHECK --interval=30s --timeout=10s --start-period=2m \
    CMD [".venv/bin/python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7863', timeout=9)"]
ENTRYPOINT ["./run.sh", "--workspace", "/workspace"]
CMD ["--host", "0.0.0.0"]
