# The monitor, the webhook receiver and the commands: `docker build -f deploy/containers/monitor.Dockerfile -t
# rankpulse-monitor:0.1.0 .` from the repository's root.
FROM python:3.13.9-slim-bookworm AS build
COPY . /src
RUN python -m venv /opt/rankpulse \
 && /opt/rankpulse/bin/pip install --no-cache-dir --no-compile /src \
 && /opt/rankpulse/bin/pip uninstall --yes pip

FROM python:3.13.9-slim-bookworm
COPY --from=build /opt/rankpulse /opt/rankpulse
COPY deploy/containers/healthy.py /opt/rankpulse/healthy.py
ENV PATH=/opt/rankpulse/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    RANKPULSE_CONFIG=/etc/rankpulse/rankpulse.toml
USER 10001:10001
EXPOSE 9460 9470 9471
HEALTHCHECK --interval=20s --timeout=5s --start-period=15s --retries=6 \
  CMD ["python", "-I", "/opt/rankpulse/healthy.py", "monitor"]
ENTRYPOINT ["rankpulse"]
CMD ["monitor"]
