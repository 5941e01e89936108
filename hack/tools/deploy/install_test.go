// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// top is the top of the repository.
const top = "../../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// run runs a program and returns what it prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	printed, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, printed)
	}
	return string(printed)
}

// TestInstall_UpToDate: deploy/install.yaml is what `make deploy` writes. A change of deploy/base requires another run.
func TestInstall_UpToDate(t *testing.T) {
	fresh := filepath.Join(t.TempDir(), "install.yaml")
	run(t, filepath.Join(top, "hack/deploy"), "", fresh)
	want, err := os.ReadFile(fresh)
	if err != nil {
		t.Fatal(err)
	}
	if read(t, "deploy/install.yaml") != string(want) {
		t.Error("deploy/install.yaml is not what deploy/base gives: run make deploy, and commit it")
	}
}

// TestInstall_PrivilegedWithoutToken: the privileged container, which does not connect to the API server, gets no
// token; the other containers get it where the kubeconfig expects it.
func TestInstall_PrivilegedWithoutToken(t *testing.T) {
	manifests := read(t, "deploy/install.yaml")
	_, daemonSet, _ := strings.Cut(manifests, "kind: DaemonSet\n")
	if !strings.Contains(daemonSet, "automountServiceAccountToken: false\n") {
		t.Error("each container gets a token")
	}
	const mounted = "mountPath: /var/run/secrets/kubernetes.io/serviceaccount\n          name: token\n"
	want := map[string]bool{"init": false, "preflight": true, "sluice": true}
	for _, container := range strings.Split(daemonSet, "        image: ")[1:] {
		_, rest, _ := strings.Cut(container, "        name: ")
		name, _, _ := strings.Cut(rest, "\n")
		if has := strings.Contains(container, mounted); has != want[name] {
			t.Errorf("container %s has a token: %t, want %t", name, has, want[name])
		}
		delete(want, name)
	}
	if len(want) != 0 {
		t.Errorf("no container %v", want)
	}
}

// TestOverlay_Userspace: the overlay for userspace mode gives the proxy and its preflight check the capability that the
// mode needs, lets pods overlap, and changes nothing else.
func TestOverlay_Userspace(t *testing.T) {
	run(t, filepath.Join(top, "hack/deploy"), "", filepath.Join(t.TempDir(), "install.yaml")) // builds kustomize
	build := func(folder string) string {
		return run(t, filepath.Join(top, "bin/kustomize"), "build", filepath.Join(top, "deploy", folder))
	}
	base, overlay := build("base"), build("userspace")
	if n := strings.Count(overlay, "- NET_BIND_SERVICE\n"); n != 2 || strings.Contains(base, "NET_BIND_SERVICE") {
		t.Errorf("NET_BIND_SERVICE is given to %d containers, want 2, and none of the base", n)
	}
	for _, line := range []string{"maxSurge: 10%", "maxUnavailable: 0", "terminationGracePeriodSeconds: 60"} {
		if !strings.Contains(overlay, line+"\n") {
			t.Errorf("the overlay lacks %s", line)
		}
	}
	if strings.Count(overlay, "\n")-strings.Count(base, "\n") != 3 {
		t.Error("the overlay changes more than that")
	}
}

// TestOverlay_Fleet: the overlay for queries to all nodes opens the port in the proxy, and not in its preflight check.
func TestOverlay_Fleet(t *testing.T) {
	run(t, filepath.Join(top, "hack/deploy"), "", filepath.Join(t.TempDir(), "install.yaml")) // builds kustomize
	overlay := run(t, filepath.Join(top, "bin/kustomize"), "build", filepath.Join(top, "deploy/fleet"))
	for text, want := range map[string]int{"inspection: {bindAddress: 0.0.0.0:10253}\n": 1, "security: {inspection: true}\n": 1, "probeAddress: 127.0.0.1:10256}\n": 1, "reload: off\n": 1, "- pods/proxy\n": 1,
		"- serviceaccounts/token\n": 1, "- /v1alpha1/*\n": 1, "name: sluice-fleet\n": 4, "name: sluice-auth-delegator\n": 1} {
		if n := strings.Count(overlay, text); n != want {
			t.Errorf("%d times %q, want %d", n, text, want)
		}
	}
}

// TestInstall_CustomImage: hack/deploy with an image writes manifests whose three containers use it.
func TestInstall_CustomImage(t *testing.T) {
	const image = "registry.example/team/sluice:v1.2.3"
	fresh := filepath.Join(t.TempDir(), "install.yaml")
	run(t, filepath.Join(top, "hack/deploy"), image, fresh)
	text, err := os.ReadFile(fresh)
	if err != nil {
		t.Fatal(err)
	}
	var images int
	for line := range strings.Lines(string(text)) {
		if name, found := strings.CutPrefix(strings.TrimSpace(line), "image: "); found {
			images++
			if name != image {
				t.Errorf("image %s, want %s", name, image)
			}
		}
	}
	if images != 3 {
		t.Errorf("%d images, want those of three containers", images)
	}
}

// TestOverlay_Secured: the overlay for a secured metrics address changes each endpoint of the ServiceMonitor and grants
// the permissions.
func TestOverlay_Secured(t *testing.T) {
	run(t, filepath.Join(top, "hack/deploy"), "", filepath.Join(t.TempDir(), "install.yaml")) // builds kustomize
	overlay := run(t, filepath.Join(top, "bin/kustomize"), "build", filepath.Join(top, "deploy/secured"))
	endpoints := strings.Count(overlay, "port: metrics\n")
	for _, line := range []string{"scheme: https", "bearerTokenFile: /var/run/secrets/sluice.dev/token", "serverName: sluice-metrics", "name: sluice-metrics-ca"} {
		if n := strings.Count(overlay, line+"\n"); n != endpoints || n == 0 {
			t.Errorf("%q is given %d times, for %d endpoints", line, n, endpoints)
		}
	}
	for _, line := range []string{"name: system:auth-delegator", "- /metrics/services", "name: sluice-metrics-reader"} {
		if !strings.Contains(overlay, line+"\n") {
			t.Errorf("the overlay lacks %s", line)
		}
	}
}
