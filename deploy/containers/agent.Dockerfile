# The agent of a node: `docker build -f deploy/containers/agent.Dockerfile -t rankpulse-agent:0.1.0 .` from the repository's root.
FROM python:3.13.9-slim-bookworm AS build
COPY . /src
# built apart, so that neither pip's leftovers nor the sources are in the image
RUN python -m venv /opt/rankpulse \
 && /opt/rankpulse/bin/pip install --no-cache-dir --no-compile '/src[gpu]' \
 && /opt/rankpulse/bin/pip uninstall --yes pip

FROM python:3.13.9-slim-bookworm
# journalctl: the kernel's log, for a container may not open /dev/kmsg. Unpinned, for Debian keeps no older versions; the base is
# pinned, and a rebuild takes the fixes
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends systemd \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/rankpulse /opt/rankpulse
COPY deploy/containers/healthy.py /opt/rankpulse/healthy.py
ENV PATH=/opt/rankpulse/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    RANKPULSE_CONFIG=/etc/rankpulse/rankpulse.toml
# Root, and with SYS_PTRACE, KILL, DAC_OVERRIDE, FOWNER and CHOWN alone (docs/kubernetes.md says what each is for): it serves the
# jobs of all users of the node. For the jobs of one user give it that user (`--user`, runAsUser) and no capability.
# hadolint ignore=DL3002
USER 0:0
EXPOSE 9465 9466
HEALTHCHECK --interval=20s --timeout=5s --start-period=30s --retries=6 \
  CMD ["python", "-I", "/opt/rankpulse/healthy.py", "agent"]
ENTRYPOINT ["rankpulse"]
CMD ["agent"]
