# The sweeper beside the SGLang that it tunes, for one node with NVIDIA GPUs.
#
#   docker build --tag sweeper .
#   docker run --rm --init --gpus all --ipc=host --network=host --ulimit memlock=-1 \
#       --volume /data/models:/models:ro \
#       --volume sweeper-cache:/cache \
#       --volume sweeper-results:/sweep/results \
#       sweeper <arguments>
#
# --init          reaps the processes that a killed server leaves behind
# --gpus all      a sweep owns the node: a neighbour on a GPU would be in the numbers
# --ipc=host      NCCL and Ray pass data through /dev/shm, of which a container has
#                 64 MB; --shm-size=32g instead where the host's is not to be shared
# --network=host  Ray's dashboard is then at 127.0.0.1:8265 on the host and nowhere
#                 else. It listens on the loopback address, so without this option
#                 "-p 127.0.0.1:8265:8265" reaches it only if Ray is told to listen
#                 on 0.0.0.0 in the container. It asks for the token that Ray writes
#                 to /cache/.ray/auth_token.
# --ulimit        NCCL pins memory
# --volume        results mounted from a folder of the host: make it writable for uid
#                 10000, or add --user "$(id -u):$(id -g)"

# The tag names the SGLang release that the sweeper is tested with. A tag can be moved:
# whoever builds for production pins what they tested, with
#   --build-arg SGLANG_IMAGE=lmsysorg/sglang@sha256:<digest>
# It has CUDA 13, and so needs a driver of the 580 series; v0.5.19-cu129 was SGLang's last
# image with CUDA 12.
ARG SGLANG_IMAGE=lmsysorg/sglang:v0.5.23
FROM ${SGLANG_IMAGE}

SHELL ["/bin/bash", "-o", "pipefail", "-c"]

COPY pyproject.toml README.md /opt/sweeper/
COPY sweeper /opt/sweeper/sweeper
COPY search_spaces /sweep/search_spaces

# Into the interpreter that has SGLang, so that flags are read from the version that
# will run; without the "engine" extra, since the image is the engine. Everything that
# the image brought is a constraint: a conflict ends the build here, rather than change
# the torch, NCCL or SGLang that is about to be measured. The pattern drops the versions
# of Debian's own Python packages, which pip cannot parse, and pip must be told that
# this is the system's interpreter (PEP 668).
RUN python3 -m pip list --format=freeze --exclude-editable \
        | grep -E '==[0-9.]+((a|b|rc|\.post|\.dev)[0-9]+)*(\+[A-Za-z0-9.]+)?$' \
        > /tmp/engine.txt \
    && PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir \
        --constraint /tmp/engine.txt /opt/sweeper \
    && rm /tmp/engine.txt

# Not as root: results should not belong to it. Folders open to any user, for --user.
# FlashInfer makes links inside its own package at run time; without the right to do so,
# good attention and MoE backends would fail as if they were bad configurations
# (https://github.com/flashinfer-ai/flashinfer/issues/2976).
RUN useradd --uid 10000 --home-dir /cache --no-create-home sweeper \
    && install --directory --mode 1777 /cache /sweep/results \
    && find / -xdev -type d -path '*/flashinfer_cubin/cubins*' -exec chmod a+w '{}' +

# Everything that a start downloads or compiles goes below the home folder. Keep it
# between runs: compiling kernels again costs a start minutes.
# USER is for torch, which asks for the name of a user that --user may not have.
ENV HOME=/cache USER=sweeper
VOLUME ["/cache", "/sweep/results"]
WORKDIR /sweep
USER 10000

ENTRYPOINT ["python3", "-m", "sweeper"]
