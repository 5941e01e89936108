// SPDX-License-Identifier: Apache-2.0

// Package install tests the installation of Sluice in containers: the images of `make image`, the
// manifests of deploy/ and kubeadm's own, on a node with containerd, runc and a real kubelet, with a
// whole control plane. `make test-install` runs it. Its files have the build tag install, because
// it needs root and Debian packages that the other end-to-end tests do not.
package install
