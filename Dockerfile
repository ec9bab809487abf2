# The page with its packages: docker compose --profile gpu up, or --profile cpu (see compose.yaml).
# The default PyTorch needs a driver for CUDA 13; for an older one: --build-arg TORCH=cu126.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates git python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /app
ARG TORCH=default
COPY . .
RUN TORCH="$TORCH" PIP_NO_CACHE_DIR=1 bash -c '. ./setup_venv.sh && setup_venv'
RUN useradd --create-home --uid 1000 studio && install -d -o studio /workspace
USER studio
VOLUME /workspace
EXPOSE 7863
ENTRYPOINT ["./run.sh", "--workspace", "/workspace"]
CMD ["--host", "0.0.0.0"]
