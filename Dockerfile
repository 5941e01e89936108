# The image for those who build with docker, podman or buildah:
#
#   docker build --build-arg VERSION=v1.2.3 -t sluice:v1.2.3 .
#   docker build --build-arg VERSION=v1.2.3 --target static -t sluice:v1.2.3-static .
#
# `make image` gives the same contents without any of these: both use hack/image/packages and
# hack/image/debian-root. A test in hack/tools/image compares what else they say.
#
# The base images only build; none of them is in the result. For a repeatable build, name them by digest:
#
#   --build-arg GO_IMAGE=golang@sha256:… --build-arg DEBIAN_IMAGE=debian@sha256:…
ARG GO=1.26
ARG GO_IMAGE=golang:${GO}-bookworm
ARG DEBIAN_IMAGE=debian:bookworm-slim

FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS program
ARG TARGETARCH
ARG VERSION
WORKDIR /src
COPY . .
RUN mkdir -p /out/usr/local/bin /out/lib/modules /out/run /out/tmp /out/var/lib/kube-proxy && \
    hack/image/licenses /out/usr/share/doc/sluice/licenses && \
    ln -s sluice /out/usr/local/bin/kube-proxy && \
    GOOS=linux GOARCH=$TARGETARCH make build STRIP=1 BINARY=/out/usr/local/bin/sluice ${VERSION:+VERSION=$VERSION}

FROM --platform=$BUILDPLATFORM ${DEBIAN_IMAGE} AS debian
ARG TARGETARCH
COPY hack/image /image
RUN CACHE=/cache /image/debian-root $TARGETARCH /out $(grep -v '^#' /image/packages)

# The program alone, for nftables mode.
FROM scratch AS static
COPY --from=program /out /
ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENTRYPOINT ["/usr/local/bin/sluice"]
CMD ["proxy"]

# The default, with Debian's iptables.
FROM scratch
COPY --from=debian /out /
COPY --from=program /out /
ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENTRYPOINT ["/usr/local/bin/sluice"]
CMD ["proxy"]
