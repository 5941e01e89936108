// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/doctest"
	"github.com/sluice-proxy/sluice/test/harness"
)

// The test follows these pages. pageVersion is the version that they name.
const (
	migratePage   = "docs/migrate.md"
	uninstallPage = "docs/upgrade.md"
	pageVersion   = "v0.1.0"
	// blockMax bounds one block of commands. The first builds the image.
	blockMax = 5 * time.Minute

	returnHeading = "Return to kube-proxy"
)

// The commands of the pages migrate a kubeadm node and return it, exactly as printed, and no client notices. A reader
// replaces only the name of the node.
func TestInstall_Page(t *testing.T) {
	report := newReport(t)
	dir := t.TempDir()
	var all images
	report.prepare("images of kube-proxy and of the pods", func(t *testing.T) { all = makeKubernetesImages(t, dir) })
	var s *site
	report.prepare("a cluster with a node", func(t *testing.T) { s = newSite(t, report, all) })
	report.step("kubeadm init phase addon kube-proxy", func(t *testing.T) { s.addKubeProxy(t, `""`) })
	report.step("services answer", func(t *testing.T) { s.services(t) })
	r := newReader(t, s)
	began := time.Now()
	for _, p := range []struct {
		page, heading string
		after         []func(t *testing.T, printed string) // per block
	}{
		{migratePage, "1. Build and distribute the image", []func(*testing.T, string){nothing}},
		{migratePage, "2. Pin the proxy mode", []func(*testing.T, string){nothing}},
		{migratePage, "3. Create the DaemonSet", []func(*testing.T, string){s.kubeProxyServes}},
		{migratePage, "4. Migrate the first node", []func(*testing.T, string){s.sluiceServes("sluice"), looksGood}},
		{migratePage, "Roll back a node", []func(*testing.T, string){s.kubeProxyServes}},
		{uninstallPage, returnHeading, []func(*testing.T, string){s.kubeProxyServes, s.sluiceIsGone}},
		{migratePage, "Alternative: replace only the image", []func(*testing.T, string){s.sluiceServes("kube-proxy"), s.kubeProxyServes}},
	} {
		blocks := r.blocks(t, p.page, p.heading)
		if len(blocks) != len(p.after) {
			t.Fatalf("%s: %q has %d blocks, want %d", p.page, p.heading, len(blocks), len(p.after))
		}
		for i, block := range blocks {
			report.step(fmt.Sprintf("%s (block %d of %d)", p.heading, i+1, len(blocks)), func(t *testing.T) {
				watch := s.undisturbed
				if p.heading == "3. Create the DaemonSet" || p.heading == returnHeading && i == 1 {
					watch = s.observed // kube-proxy restarts, while Sluice is not on the node
				}
				watch(t, func() {
					began := time.Now()
					printed := r.follow(t, block)
					report.count("%.1f s for its commands", time.Since(began).Seconds())
					p.after[i](t, printed)
				})
			})
		}
	}
	report.count("%.1f s for the pages", time.Since(began).Seconds())
}

// reader follows pages in a shell at the top of a checkout.
type reader struct {
	checkout string
	env      []string
	exported string // file with what the former blocks have exported
}

func newReader(t *testing.T, s *site) *reader {
	t.Helper()
	dir := t.TempDir()
	r := &reader{checkout: filepath.Join(dir, "sluice"), exported: filepath.Join(dir, "exported")}
	whole, err := filepath.Abs(top)
	if err != nil {
		t.Fatal(err)
	}
	r.env = append(os.Environ(), "PATH="+s.OperatorPrograms(t)+":"+os.Getenv("PATH"),
		"CACHE="+filepath.Join(whole, ".cache")) // Debian packages that were downloaded before
	// A checkout of the present commit with what has been changed since.
	const copied = `git clone --quiet --shared --no-checkout . "$0"
git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - | tar -C "$0" -xf -`
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", copied, r.checkout)
	cmd.Dir = top
	if printed, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("copy the repository: %v\n%s", err, printed)
	}
	return r
}

// blocks returns the commands below a heading of a page.
func (r *reader) blocks(t *testing.T, page, heading string) []string {
	t.Helper()
	sections, err := doctest.Sections(filepath.Join(top, page))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sections {
		if s.Heading == heading {
			return s.Blocks
		}
	}
	t.Fatalf("%s has no section %q with commands", page, heading)
	return nil
}

// follow runs a block, with what the blocks before it have exported, and returns what it printed.
func (r *reader) follow(t *testing.T, block string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), blockMax)
	defer cancel()
	block = strings.ReplaceAll(block, "NODE=worker-1", "NODE="+harness.NodeName)
	const around = "[ ! -e %[1]s ] || . %[1]s\n%[2]s\nexport -p >%[1]s"
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", fmt.Sprintf(around, r.exported, block))
	cmd.Dir, cmd.Env, cmd.WaitDelay = r.checkout, r.env, time.Minute
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, block, printed)
	}
	t.Logf("%s\n%s", block, printed)
	return string(printed)
}

func nothing(*testing.T, string) {}

func (s *site) kubeProxyServes(t *testing.T, _ string) {
	s.mustRunKubeProxy(t)
	s.grow(t)
}

// sluiceServes returns a check that the pod of a DaemonSet runs the pages' version and serves.
func (s *site) sluiceServes(daemonSet string) func(*testing.T, string) {
	return func(t *testing.T, _ string) {
		s.mustRun(t, daemonSet, "sluice "+pageVersion, "iptables")
		s.grow(t)
	}
}

// looksGood checks what the page promises of the node's answers.
func looksGood(t *testing.T, printed string) {
	for _, want := range []string{"The proxy would start in iptables mode", "\nhealthy (200)", "no problems found"} {
		if !strings.Contains(printed, want) {
			t.Errorf("the commands do not print %q", want)
		}
	}
}

func (s *site) sluiceIsGone(t *testing.T, printed string) {
	_, err := s.Client.AppsV1().DaemonSets("kube-system").Get(t.Context(), "sluice", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the DaemonSet sluice is there: %v", err)
	}
	set, err := s.Client.AppsV1().DaemonSets("kube-system").Get(t.Context(), "kube-proxy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if set.Spec.Template.Spec.Affinity != nil {
		t.Errorf("kube-proxy still leaves nodes out: %v", set.Spec.Template.Spec.Affinity)
	}
	s.AwaitRollout(t, "kube-proxy")
	s.kubeProxyServes(t, printed)
}
