# flightd from source: docker build --build-arg VERSION=v1.2.3 -t flightd .
#
# The image contains a static binary, the public CA certificates and an empty data directory, and runs as an unprivileged
# user. It serves all callers of a company: run one, with its data on a volume, and never one per pod.
#
#   docker run --rm -v flightd:/var/lib/flightd flightd serve --init       # once: makes the ledger and the first token, and ends
#   docker run -d --name flightd -p 7420:7420 -v flightd:/var/lib/flightd -v /etc/flightd/tls:/tls:ro \
#     -e FLIGHTD_TLS_CERT=/tls/server.crt -e FLIGHTD_TLS_KEY=/tls/server.key flightd
#   docker exec -e FLIGHTD_ADDR=https://localhost:7420 -e FLIGHTD_CA_FILE=/tls/ca.crt \
#     -e FLIGHTD_TOKEN_FILE=/var/lib/flightd/first-token flightd /flightd token create billing -n billing
#
# --init has no place in what restarts: a container whose volume is missing must not make a ledger, and without one it ends
# with 78.
#
# Metrics are on port 9464, in plain HTTP and without a token: publish it (-p 9464:9464) only where Prometheus alone reaches it.
#
# User 65532 must be able to read server.key. Without a certificate, or FLIGHTD_ALLOW_PLAIN_HTTP=true behind a proxy that
# ends TLS, the server does not start. To try it on one machine without credentials:
#
#   docker run --network host flightd dev --listen 127.0.0.1:7420 --listen-metrics 127.0.0.1:9464
FROM golang:1.26.8 AS build
WORKDIR /src
# Modules first: they change less often than the source.
COPY go.mod go.sum ./
RUN go mod download && go mod verify
COPY . .
ARG VERSION=devel
RUN CGO_ENABLED=0 GOWORK=off go build -o /out/flightd -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X main.stamped=${VERSION}" ./cmd/flightd
RUN mkdir -p /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/LICENSE /LICENSE
COPY --from=build /out/flightd /flightd
COPY --from=build --chown=65532:65532 /out/data /var/lib/flightd
USER 65532:65532
ENV FLIGHTD_DATA=/var/lib/flightd XDG_STATE_HOME=/var/lib/flightd/state
ENV FLIGHTD_LISTEN=0.0.0.0:7420 FLIGHTD_LISTEN_METRICS=0.0.0.0:9464 FLIGHTD_FIRST_TOKEN_FILE=/var/lib/flightd/first-token
VOLUME /var/lib/flightd
STOPSIGNAL SIGTERM
ENTRYPOINT ["/flightd"]
EXPOSE 7420
EXPOSE 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["/flightd", "ready"]
CMD ["serve"]
