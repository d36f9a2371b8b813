# flightd from source: docker build --build-arg VERSION=v1.2.3 -t flightd .
#
# The image contains a static binary, the public CA certificates and an empty data directory, and runs as an unprivileged
# user. The server listens on the loopback address only, so a published port (-p) would not reach it. Share the network of
# the caller instead:
#
#   docker run --network host -v flightd:/var/lib/flightd flightd
#   docker run --network container:app -v flightd:/var/lib/flightd flightd
FROM golang:1.26 AS build
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
VOLUME /var/lib/flightd
STOPSIGNAL SIGTERM
ENTRYPOINT ["/flightd"]
CMD ["dev"]
