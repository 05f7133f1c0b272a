# The scheduler's image: one static program and its license. No shell, no libraries, no root.
#
#     docker build -t ghcr.io/supercargo-dev/supercargo:0.1.0 .
#     docker buildx build --platform linux/amd64,linux/arm64 -t IMAGE --push .
#     docker build --build-arg PACKAGE=example-scheduler -t IMAGE .
#
# `--build-arg REVISION=$(git rev-parse HEAD)` sets the commit of --version and of the labels: .git
# is not in the context.
#
# It needs BuildKit, which sets BUILDPLATFORM, BUILDARCH and TARGETARCH. The compiler runs on the
# builder's platform for every target, without emulation. tests/packaging compares this file with
# the workspace and the manifests.

ARG RUST_VERSION=1.95

FROM --platform=$BUILDPLATFORM rust:${RUST_VERSION}-slim-bookworm AS tools
WORKDIR /build
# glibc is linked statically. musl's allocator is slow with threads, and Debian has a musl C
# compiler, which ring needs, only for the builder's platform. Cargo also passes these flags to
# build scripts unless a target is set, as it is below. Without debug information the program is a
# quarter of the size; backtraces keep function names.
ENV RUSTFLAGS="-C target-feature=+crt-static" \
    CARGO_PROFILE_RELEASE_DEBUG=none

FROM tools AS for-amd64
ENV CARGO_BUILD_TARGET=x86_64-unknown-linux-gnu \
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=x86_64-linux-gnu-gcc \
    CROSS_PACKAGES="gcc-x86-64-linux-gnu libc6-dev-amd64-cross"

FROM tools AS for-arm64
ENV CARGO_BUILD_TARGET=aarch64-unknown-linux-gnu \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CROSS_PACKAGES="gcc-aarch64-linux-gnu libc6-dev-arm64-cross"

FROM for-$TARGETARCH AS build
ARG BUILDARCH
ARG TARGETARCH
# The workspace package whose program of the same name goes into the image.
ARG PACKAGE=supercargo
RUN rustup target add "$CARGO_BUILD_TARGET" \
    && if [ "$BUILDARCH" != "$TARGETARCH" ]; then \
        apt-get update \
        && apt-get install --yes --no-install-recommends $CROSS_PACKAGES \
        && rm -rf /var/lib/apt/lists/*; \
    fi

# Builds the dependencies with empty crates, in a layer that is cached until a manifest or the lock
# file changes. Cargo needs the manifest of every workspace member, including members that are not
# built.
COPY Cargo.toml Cargo.lock ./
COPY benches/Cargo.toml benches/
COPY crates/cel/Cargo.toml crates/cel/
COPY crates/client/Cargo.toml crates/client/
COPY crates/codec/Cargo.toml crates/codec/
COPY crates/config/Cargo.toml crates/config/
COPY crates/devices/Cargo.toml crates/devices/
COPY crates/evaluation/Cargo.toml crates/evaluation/
COPY crates/framework/Cargo.toml crates/framework/
COPY crates/go-regex/Cargo.toml crates/go-regex/
COPY crates/informer/Cargo.toml crates/informer/
COPY crates/owner/Cargo.toml crates/owner/
COPY crates/page/Cargo.toml crates/page/
COPY crates/queue/Cargo.toml crates/queue/
COPY crates/redaction/Cargo.toml crates/redaction/
COPY crates/report/Cargo.toml crates/report/
COPY crates/runtime/Cargo.toml crates/runtime/
COPY crates/scheduler/Cargo.toml crates/scheduler/
COPY crates/serving/Cargo.toml crates/serving/
COPY crates/telemetry/Cargo.toml crates/telemetry/
COPY crates/timeline/Cargo.toml crates/timeline/
COPY examples/scheduler/Cargo.toml examples/scheduler/
COPY plugins/Cargo.toml plugins/
COPY plugins/dynamic-resources/Cargo.toml plugins/dynamic-resources/
COPY plugins/volumes/Cargo.toml plugins/volumes/
COPY testing/apiserver/Cargo.toml testing/apiserver/
COPY testing/controlplane/Cargo.toml testing/controlplane/
COPY testing/simulation/Cargo.toml testing/simulation/
COPY xtask/Cargo.toml xtask/
RUN for manifest in $(find . -name Cargo.toml); do \
        mkdir -p "${manifest%/*}/src" && : > "${manifest%/*}/src/lib.rs" || exit 1; \
    done \
    && echo 'fn main() {}' > src/main.rs \
    && cargo build --release --locked --no-default-features --package "$PACKAGE"

COPY crates/cel/src crates/cel/src
COPY crates/client/src crates/client/src
COPY crates/codec/src crates/codec/src
COPY crates/config/src crates/config/src
COPY crates/devices/src crates/devices/src
COPY crates/evaluation/src crates/evaluation/src
COPY crates/framework/src crates/framework/src
COPY crates/go-regex/src crates/go-regex/src
COPY crates/informer/src crates/informer/src
COPY crates/owner/src crates/owner/src
COPY crates/page/src crates/page/src
COPY crates/queue/src crates/queue/src
COPY crates/redaction/src crates/redaction/src
COPY crates/report/src crates/report/src
COPY crates/runtime/src crates/runtime/src
COPY crates/scheduler/src crates/scheduler/src
COPY crates/serving/src crates/serving/src
COPY crates/telemetry/src crates/telemetry/src
COPY crates/timeline/src crates/timeline/src
COPY examples/scheduler/src examples/scheduler/src
COPY plugins/dynamic-resources/src plugins/dynamic-resources/src
COPY plugins/src plugins/src
COPY plugins/volumes/src plugins/volumes/src
COPY src src
COPY build.rs ./
# Shown by --version.
ARG REVISION=unknown
ENV SUPERCARGO_COMMIT=$REVISION
# Cargo compares modification times, and the copied files are older than the empty ones were. A
# program with an interpreter would not start without a C library.
RUN find . -path ./target -prune -o -name '*.rs' -exec touch {} + \
    && cargo build --release --locked --no-default-features --package "$PACKAGE" \
    && cp "target/$CARGO_BUILD_TARGET/release/$PACKAGE" supercargo \
    && readelf --program-headers supercargo > headers \
    && if grep INTERP headers; then exit 1; fi

FROM scratch
# The SBOM is also made from the context with Cargo.lock, because the program alone does not show
# its crates.
ARG BUILDKIT_SBOM_SCAN_CONTEXT=true
ARG VERSION=0.1.0
# The commit and its time (RFC 3339), not the build's, so that the same sources give the same
# labels.
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="supercargo" \
      org.opencontainers.image.description="A Kubernetes scheduler in Rust, built on informers" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.url="https://github.com/supercargo-dev/supercargo" \
      org.opencontainers.image.source="https://github.com/supercargo-dev/supercargo" \
      org.opencontainers.image.documentation="https://github.com/supercargo-dev/supercargo/tree/main/docs" \
      org.opencontainers.image.vendor="The supercargo authors" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED"
COPY LICENSE /LICENSE
COPY --from=build /build/supercargo /supercargo
# For extenders and trace collectors with public certificates; the API server's CA comes with the
# service account.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
USER 65532:65532
# HTTPS: health and metrics. Probes use HTTP, because the image has no other program to run.
EXPOSE 10259
ENTRYPOINT ["/supercargo"]
CMD ["run"]
