// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/testenv"
)

// follower follows a configuration file in a test.
type follower struct {
	*testing.T
	updates chan Update
}

// follow watches a valid file. Poll is how often it is read without an event.
func follow(t *testing.T, file string, poll time.Duration) *follower {
	t.Helper()
	flags, err := parse("--config", file)
	if err != nil {
		t.Fatal(err)
	}
	config, _, err := flags.Load()
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t, make(chan Update, 100)}
	w := newWatcher(flags, config, func(u Update) { f.updates <- u })
	w.Quiet, w.Limit, w.poll = 20*time.Millisecond, 200*time.Millisecond, poll
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return f
}

// next returns the next update.
func (f *follower) next() Update {
	f.Helper()
	select {
	case u := <-f.updates:
		return u
	case <-time.After(testenv.Patience):
		f.Fatal("no update")
		return Update{}
	}
}

// expect waits for an update with some changed fields.
func (f *follower) expect(fields ...string) Update {
	f.Helper()
	u := f.next()
	var changed []string
	for _, c := range u.Changes {
		changed = append(changed, c.Field)
	}
	if u.Err != nil || !slices.Equal(changed, fields) {
		f.Fatalf("changes %v, error %v; want %v", changed, u.Err, fields)
	}
	return u
}

// quiet checks that there is no update for a while.
func (f *follower) quiet() {
	f.Helper()
	select {
	case u := <-f.updates:
		f.Fatalf("update without a reason: %+v", u)
	case <-time.After(300 * time.Millisecond):
	}
}

// put replaces a file atomically, as editors do: another file is renamed over it.
func put(t *testing.T, file, text string) {
	t.Helper()
	overwrite(t, file+".new", text)
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// overwrite truncates and writes a file.
func overwrite(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// never is a poll longer than any test: only events can be noticed.
const never = time.Hour

func TestWatch(t *testing.T) {
	file := write(t, kubeProxyHead+"oomScoreAdj: 1\n")
	f := follow(t, file, never)
	f.quiet() // it was loaded

	put(t, file, kubeProxyHead+"oomScoreAdj: 2\nclusterCIDR: 10.0.0.0/8\n")
	if u := f.expect("clusterCIDR", "oomScoreAdj"); u.Config.KubeProxy.ClusterCIDR != "10.0.0.0/8" {
		t.Errorf("%+v", u.Changes)
	}

	// A mistake is reported once.
	put(t, file, kubeProxyHead+"oomScoreAdj: 5000\n")
	if u := f.next(); u.Err == nil || u.Err.Error() != file+":3: oomScoreAdj: 5000: must be -1000 to 1000" || *u.Config.KubeProxy.OOMScoreAdj != 1 || u.Changes != nil {
		t.Fatalf("%+v", u)
	}
	put(t, file, kubeProxyHead+"oomScoreAdj: 5000\n")
	f.quiet()

	// The changes are relative to the current configuration.
	put(t, file, kubeProxyHead+"oomScoreAdj: 1\nmode: ipvs\nunknown: 1\n")
	if u := f.expect("mode"); len(u.Warnings) != 1 || u.Warnings[0].Field != "unknown" {
		t.Errorf("%+v", u.Warnings)
	}

	// Only a comment changes, but the mistake is gone.
	put(t, file, "# nothing else\n"+kubeProxyHead+"oomScoreAdj: 1\n")
	f.expect()
}

// TestWatch_InPlaceWrite: after a write in place, the new content is read. An error from reading it halfway is
// corrected by the next reading.
func TestWatch_InPlaceWrite(t *testing.T) {
	file := write(t, kubeProxyHead)
	f := follow(t, file, never)
	for _, mode := range []string{"iptables", "ipvs"} { // more than once
		overwrite(t, file, kubeProxyHead+"mode: "+mode+"\n")
		for string(f.next().Config.KubeProxy.Mode) != mode {
		}
	}
}

// TestWatch_EmptyFile: an empty file is an error only if it remains empty, since it may be about to be written.
func TestWatch_EmptyFile(t *testing.T) {
	file := write(t, kubeProxyHead)
	f := follow(t, file, 1500*time.Millisecond)
	put(t, file, "")
	f.quiet()
	if u := f.next(); u.Err == nil || u.Err.Error() != file+": contains no KubeProxyConfiguration (apiVersion kubeproxy.config.k8s.io/v1alpha1) and no SluiceConfiguration (apiVersion sluice.dev/v1alpha1)" {
		t.Fatalf("%+v", u)
	}
	put(t, file, kubeProxyHead)
	f.expect()
}

// TestWatch_MissingFile: a missing file is an error until it exists again.
func TestWatch_MissingFile(t *testing.T) {
	file := write(t, kubeProxyHead)
	f := follow(t, file, never)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if u := f.next(); u.Err == nil || !strings.Contains(u.Err.Error(), "cannot be read: no such file or directory") {
		t.Fatalf("%+v", u)
	}
	put(t, file, kubeProxyHead+"mode: ipvs\n")
	f.expect("mode")
}

// configMap is a directory as the kubelet creates it for a ConfigMap: files are links through
// ..data, which is a link to a directory.
type configMap struct {
	t   *testing.T
	dir string
	n   int
}

// set replaces the content as the kubelet does (AtomicWriter in its util/volume):
// a new directory, a new link, renamed over ..data, and the old directory removed.
func (m *configMap) set(text string) {
	m.t.Helper()
	old, _ := os.Readlink(filepath.Join(m.dir, "..data")) // none at first
	m.n++
	name := strings.Repeat("x", m.n)
	steps := []error{
		os.Mkdir(filepath.Join(m.dir, name), 0o700),
		os.WriteFile(filepath.Join(m.dir, name, "config.conf"), []byte(text), 0o600),
		os.Symlink(name, filepath.Join(m.dir, "..data_tmp")),
		os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")),
	}
	if old != "" {
		steps = append(steps, os.RemoveAll(filepath.Join(m.dir, old)))
	} else {
		steps = append(steps, os.Symlink(filepath.Join("..data", "config.conf"), m.file()))
	}
	for _, err := range steps {
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *configMap) file() string { return filepath.Join(m.dir, "config.conf") }

func TestWatch_ConfigMap(t *testing.T) {
	m := &configMap{t: t, dir: t.TempDir()}
	m.set(kubeProxyHead)
	f := follow(t, m.file(), never)
	f.quiet()
	for _, mode := range []string{"iptables", "ipvs", "nftables"} {
		m.set(kubeProxyHead + "mode: " + mode + "\nnodePortAddresses: [primary]\n")
		u := f.next()
		if u.Err != nil || string(u.Config.KubeProxy.Mode) != mode {
			t.Fatalf("%s: %+v", mode, u)
		}
	}
	m.set(kubeProxyHead + "mode: fast\n")
	if u := f.next(); u.Err == nil {
		t.Fatalf("%+v", u)
	}
	m.set(kubeProxyHead)
	f.expect()
}

// TestWatch_LinkElsewhere: a link may lead out of the directory, and changes of the link and of its target are read.
func TestWatch_LinkElsewhere(t *testing.T) {
	here, there, link := write(t, kubeProxyHead), write(t, kubeProxyHead+"mode: ipvs\n"), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(here, link); err != nil {
		t.Fatal(err)
	}
	f := follow(t, link, never)
	put(t, here, kubeProxyHead+"oomScoreAdj: 1\n") // at the other end
	f.expect("oomScoreAdj")
	if err := os.Symlink(there, link+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		t.Fatal(err)
	}
	f.expect("mode")
	put(t, there, kubeProxyHead+"mode: nftables\nnodePortAddresses: [10.0.0.0/8]\n") // at the new end
	f.expect("mode", "nodePortAddresses", "SluiceConfiguration.nftables.localhostNodePorts")
}

// TestWatch_Burst: many writes are read together, and the last one applies.
func TestWatch_Burst(t *testing.T) {
	file := write(t, kubeProxyHead)
	f := follow(t, file, never)
	for i := range 200 {
		overwrite(t, file, kubeProxyHead+"oomScoreAdj: "+strings.Repeat("1", 1+i%3)+"\n")
	}
	overwrite(t, file, kubeProxyHead+"oomScoreAdj: 999\n")
	count := 1
	for ; *f.next().Config.KubeProxy.OOMScoreAdj != 999; count++ {
	}
	if count > 50 {
		t.Errorf("%d updates for 201 writes", count)
	}
}

// TestWatch_WithoutFile: without a file, there are no updates, because flags do not change.
func TestWatch_WithoutFile(t *testing.T) {
	flags, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	flags.Watch(ctx, nil, func(u Update) { t.Errorf("%+v", u) })
}
