// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/sourcetest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// rig is a follower of a real directory.
type rig struct {
	t        *testing.T
	dir      string
	posts    *sourcetest.Recorder
	cache    *source.Cache
	follower *Follower
	logs     *observer.ObservedLogs
}

// newRig prepares a follower; start runs it. Rescans are off, so that only the
// watch can bring news, unless the test asks for them.
func newRig(t *testing.T, rescan time.Duration) *rig {
	posts := sourcetest.NewRecorder()
	cache := source.NewCache(posts, source.Options{})
	core, logs := observer.New(zap.DebugLevel)
	dir := filepath.Join(t.TempDir(), "manifests")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	follower := New(dir, cache, "n", zap.New(core))
	follower.rescan, follower.retry = rescan, 10*time.Millisecond
	return &rig{t, dir, posts, cache, follower, logs}
}

func (r *rig) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.follower.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				r.t.Errorf("Run returned %v, want nil", err)
			}
		case <-time.After(testenv.Patience):
			r.t.Error("Run did not end with its context")
		}
	})
}

// started returns a running follower whose directory holds Service a in a.yaml and
// Service b in b.yaml.
func started(t *testing.T) *rig {
	r := newRig(t, time.Hour)
	r.write("a.yaml", manifest("a", 80))
	r.write("b.yaml", manifest("b", 80))
	r.start()
	r.posts.Await(t, "primed default/a default/b")
	return r
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(name, text string) { r.must(os.WriteFile(r.path(name), []byte(text), 0o644)) }

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// awaitOnly waits for a post and fails if there were others.
func (r *rig) awaitOnly(line string) {
	r.t.Helper()
	if got := r.posts.Await(r.t, line); len(got) != 1 {
		r.t.Fatalf("posted %v, want %q only", got, line)
	}
}

// awaitProblem waits until a problem contains part.
func (r *rig) awaitProblem(part string) {
	r.t.Helper()
	testenv.Eventually(r.t, "a problem with "+part, func() bool {
		return slices.ContainsFunc(r.follower.Problems(), func(p Problem) bool { return strings.Contains(p.String(), part) })
	})
}

func (r *rig) awaitNoProblem() {
	r.t.Helper()
	testenv.Eventually(r.t, "no problem is left", func() bool { return len(r.follower.Problems()) == 0 })
}

// manifest returns a Service with the ClusterIP 10.96.0.97 if its name is a.
func manifest(name string, port int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec:\n  clusterIP: 10.96.0.%d\n  ports: [{port: %d}]\n", name, name[0], port)
}

func sliceManifest(owner, name, address string) string {
	return fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: %s\n  labels: {kubernetes.io/service-name: %s}\n"+
		"addressType: IPv4\nports: [{port: 8080}]\nendpoints: [{addresses: [%s]}]\n", name, owner, address)
}

// TestFollower_PrimesWithEverything: the follower primes the cache with all manifests of the directory and ignores
// other files.
func TestFollower_PrimesWithEverything(t *testing.T) {
	r := newRig(t, time.Hour)
	r.write("a.yaml", manifest("a", 80)+"---\n"+sliceManifest("a", "a-1", "10.0.0.1"))
	r.write("node.yml", "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: other}\n")
	r.write("ranges.json", `{"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "k"}, "spec": {"cidrs": ["10.96.0.0/16"]}}`)
	for _, ignored := range []string{".hidden.yaml", "a.yaml~", "a.yaml.swp", "#a.yaml#", ".#a.yaml", "README.md", "4913"} {
		r.write(ignored, "not a manifest")
	}
	r.must(os.Mkdir(r.path("folder.yaml"), 0o755))
	r.start()
	got := r.posts.Await(t, "primed default/a")
	slices.Sort(got)
	if want := []string{"node n", "primed default/a", "ranges 10.96.0.0/16", "spec default/a"}; !slices.Equal(got, want) {
		t.Errorf("posted %v, want %v", got, want)
	}
	if found := r.cache.Snapshot(service.Key{Namespace: "default", Name: "a"}); len(found.Slices) != 1 {
		t.Errorf("%d slices, want 1", len(found.Slices))
	}
	r.awaitNoProblem()
}

// TestFollower_BadStartServesRest: if a file is bad at startup, the follower serves the other files, and the bad one
// once it is fixed.
func TestFollower_BadStartServesRest(t *testing.T) {
	r := newRig(t, time.Hour)
	r.write("a.yaml", manifest("a", 80))
	r.write("bad.yaml", manifest("b", 0))
	r.start()
	r.posts.Await(t, "primed default/a")
	r.awaitProblem("bad.yaml:6: Service default/b: spec.ports[0].port: 0 is not a port number")
	r.write("bad.yaml", manifest("b", 80))
	r.awaitOnly("spec default/b")
	r.awaitNoProblem()
	testenv.Eventually(t, "both are logged", func() bool {
		return r.logs.FilterMessageSnippet("rejected invalid manifest").Len() == 1 && r.logs.FilterMessageSnippet("valid again").Len() == 1
	})
}

// TestFollower_RemovedFileNotAccepted: when a rejected file is removed, the follower logs its removal and not its
// acceptance.
func TestFollower_RemovedFileNotAccepted(t *testing.T) {
	r := newRig(t, time.Hour)
	r.write("a.yaml", manifest("a", 80))
	r.write("bad.yaml", manifest("b", 0))
	r.start()
	r.awaitProblem("bad.yaml:6: Service default/b: spec.ports[0].port: 0 is not a port number")
	r.must(os.Remove(r.path("bad.yaml")))
	r.awaitNoProblem()
	testenv.Eventually(t, "the removal is logged", func() bool {
		return r.logs.FilterMessageSnippet("rejected manifest removed").Len() == 1
	})
	if n := r.logs.FilterMessageSnippet("valid again").Len(); n > 0 {
		t.Errorf("logged %d times as accepted", n)
	}
}

// TestFollower_SeesEditors: the follower notices a replaced file, in each of the ways in which editors and other tools
// replace it.
func TestFollower_SeesEditors(t *testing.T) {
	r := started(t)
	elsewhere := filepath.Join(t.TempDir(), "new.yaml")
	ways := []struct {
		name    string
		replace func(text string)
	}{
		{"written in place", func(text string) { r.write("a.yaml", text) }},
		{"renamed over, as programs do", func(text string) {
			r.write(".a.yaml.tmp", text)
			r.must(os.Rename(r.path(".a.yaml.tmp"), r.path("a.yaml")))
		}},
		{"renamed away and written anew, as vim does", func(text string) {
			r.write("4913", "")
			r.must(os.Remove(r.path("4913")))
			r.must(os.Rename(r.path("a.yaml"), r.path("a.yaml~")))
			r.write("a.yaml", text)
			r.must(os.Remove(r.path("a.yaml~")))
		}},
		{"locked and backed up, as emacs does", func(text string) {
			r.must(os.Symlink("nobody@nowhere", r.path(".#a.yaml")))
			r.must(os.Rename(r.path("a.yaml"), r.path("a.yaml~")))
			r.write("a.yaml", text)
			r.must(os.Remove(r.path(".#a.yaml")))
			r.must(os.Remove(r.path("a.yaml~")))
		}},
		{"moved in from elsewhere", func(text string) {
			r.must(os.WriteFile(elsewhere, []byte(text), 0o644))
			r.must(os.Rename(elsewhere, r.path("a.yaml")))
		}},
		{"written with the old time", func(text string) {
			before, err := os.Stat(r.path("a.yaml"))
			r.must(err)
			r.write("a.yaml", text)
			r.must(os.Chtimes(r.path("a.yaml"), before.ModTime(), before.ModTime()))
		}},
	}
	for i, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			way.replace(manifest("a", 100+i))
			r.awaitOnly("spec default/a")
		})
	}
}

// TestFollower_WaitsForSlowWriters: an emptied file counts as empty only after a grace time, because its writer may be
// slow.
func TestFollower_WaitsForSlowWriters(t *testing.T) {
	r := started(t)
	r.write("a.yaml", "")
	time.Sleep(emptyGrace / 20) // longer than events are put off
	r.write("a.yaml", manifest("a", 81))
	r.awaitOnly("spec default/a")
	r.write("a.yaml", "")
	r.awaitOnly("spec default/a gone")
}

// TestFollower_PostsOnlyChanges: when a file changes, the follower posts only its changed objects.
func TestFollower_PostsOnlyChanges(t *testing.T) {
	r := started(t)
	both := func(port int) string { return manifest("c", 80) + "---\n" + manifest("d", port) }
	r.write("cd.yaml", both(80))
	r.posts.Await(t, "spec default/d")
	r.write("cd.yaml", both(81))
	r.awaitOnly("spec default/d")

	r.must(os.Remove(r.path("cd.yaml")))
	got := append(r.posts.Await(t, "spec default/d gone"), "")
	slices.Sort(got)
	if want := []string{"", "spec default/c gone", "spec default/d gone"}; !slices.Equal(got, want) {
		t.Errorf("removing the file posted %q, want %q", got, want)
	}
}

// TestFollower_KeepsObjectsOfRenamedFile: renaming a file posts nothing, and removing it under its new name removes its
// objects.
func TestFollower_KeepsObjectsOfRenamedFile(t *testing.T) {
	r := started(t)
	r.must(os.Rename(r.path("a.yaml"), r.path("z.yaml")))
	r.write("b.yaml", manifest("b", 81))
	r.awaitOnly("spec default/b")
	r.must(os.Remove(r.path("z.yaml")))
	r.awaitOnly("spec default/a gone")
}

// TestFollower_RejectsWholeFiles: the follower rejects a file with an invalid object as a whole, and of a file with a
// duplicate only the duplicate.
func TestFollower_RejectsWholeFiles(t *testing.T) {
	r := started(t)
	r.write("a.yaml", manifest("a", 81)+"---\n"+manifest("c", 0))
	r.awaitProblem("a.yaml:13: Service default/c: spec.ports[0].port")
	r.posts.Expect(t)
	r.write("b.yaml", manifest("b", 81)+"---\n"+manifest("a", 99))
	r.awaitProblem("b.yaml:8: Service default/a: metadata.name: is already defined in " + r.path("a.yaml") + ":1")
	r.awaitOnly("spec default/b") // the other object of the file
	testenv.Eventually(t, "the log tells which objects are rejected", func() bool {
		return r.logs.FilterMessageSnippet("rejected duplicate object").Len() == 1
	})
	r.must(os.Remove(r.path("a.yaml")))
	r.awaitOnly("spec default/a")
	r.awaitNoProblem()
}

// TestFollower_IgnoredKindsBecomeGone: a Service that becomes headless is posted as removed.
func TestFollower_IgnoredKindsBecomeGone(t *testing.T) {
	r := started(t)
	r.write("a.yaml", strings.Replace(manifest("a", 80), "10.96.0.97", "None", 1))
	r.awaitOnly("spec default/a gone")
	r.write("a.yaml", manifest("a", 80))
	r.awaitOnly("spec default/a")
}

// TestFollower_SeesVolumeSwaps follows a directory with the layout of a mounted ConfigMap: links into ..data, itself a
// link that is swapped.
func TestFollower_SeesVolumeSwaps(t *testing.T) {
	r := newRig(t, time.Hour)
	publish := func(version, text string) {
		r.must(os.Mkdir(r.path(version), 0o755))
		r.must(os.WriteFile(filepath.Join(r.path(version), "a.yaml"), []byte(text), 0o644))
		r.must(os.Symlink(version, r.path("..data_tmp")))
		r.must(os.Rename(r.path("..data_tmp"), r.path("..data")))
	}
	publish("..1", manifest("a", 80))
	r.must(os.Symlink("..data/a.yaml", r.path("a.yaml")))
	r.start()
	r.posts.Await(t, "primed default/a")
	publish("..2", manifest("a", 81))
	r.must(os.RemoveAll(r.path("..1")))
	r.awaitOnly("spec default/a")
}

// TestFollower_SurvivesDirectoryLoss: the follower keeps all objects when its directory disappears, and follows the new
// directory.
func TestFollower_SurvivesDirectoryLoss(t *testing.T) {
	r := started(t)
	r.must(os.Rename(r.dir, r.dir+".old"))
	r.awaitProblem("no such file or directory")
	r.posts.Expect(t)

	r.must(os.Mkdir(r.dir+".new", 0o755))
	r.must(os.WriteFile(filepath.Join(r.dir+".new", "a.yaml"), []byte(manifest("a", 81)), 0o644))
	r.must(os.WriteFile(filepath.Join(r.dir+".new", "b.yaml"), []byte(manifest("b", 80)), 0o644))
	r.must(os.Rename(r.dir+".new", r.dir))
	r.awaitOnly("spec default/a")
	r.awaitNoProblem()

	r.write("b.yaml", manifest("b", 81)) // the new directory is watched
	r.awaitOnly("spec default/b")
}

// TestFollower_WaitsForDirectory: the follower primes the cache only when its directory exists, because priming with
// nothing would remove all rules.
func TestFollower_WaitsForDirectory(t *testing.T) {
	r := newRig(t, time.Hour)
	r.must(os.Remove(r.dir))
	r.start()
	r.awaitProblem("no such file or directory")
	if r.cache.Stats().Primed {
		t.Fatal("primed without having read anything")
	}
	r.must(os.Mkdir(r.dir+".new", 0o755))
	r.must(os.WriteFile(filepath.Join(r.dir+".new", "a.yaml"), []byte(manifest("a", 80)), 0o644))
	r.must(os.Rename(r.dir+".new", r.dir))
	r.posts.Await(t, "primed default/a")
}

func TestFollower_Rescans(t *testing.T) {
	r := newRig(t, 10*time.Millisecond)
	target := filepath.Join(t.TempDir(), "target.yaml")
	r.must(os.WriteFile(target, []byte(manifest("a", 80)), 0o644))
	r.must(os.Symlink(target, r.path("a.yaml")))
	r.start()
	r.posts.Await(t, "primed default/a")
	r.must(os.WriteFile(target, []byte(manifest("a", 8081)), 0o644)) // no event in the directory
	r.awaitOnly("spec default/a")
}

// TestFollower_ReportsUnreadableFiles: a file that cannot be read is reported as a problem.
func TestFollower_ReportsUnreadableFiles(t *testing.T) {
	r := started(t)
	r.must(os.Remove(r.path("a.yaml")))
	r.posts.Await(t, "spec default/a gone")
	r.must(os.Symlink("/dev/zero", r.path("a.yaml")))
	r.awaitProblem("a.yaml: cannot be read: not a regular file")
	r.posts.Expect(t)
}

// TestFollower_MovesSlices: a slice that moves to another Service is posted as removed from the old one and added to
// the new one.
func TestFollower_MovesSlices(t *testing.T) {
	r := started(t)
	r.write("slice.yaml", sliceManifest("a", "s", "10.0.0.1"))
	r.awaitOnly("slice default/a s")
	r.write("slice.yaml", sliceManifest("b", "s", "10.0.0.1"))
	if got, want := r.posts.Await(t, "slice default/b s"), []string{"slice default/a s gone", "slice default/b s"}; !slices.Equal(got, want) {
		t.Errorf("posted %v, want %v", got, want)
	}
}

// TestFollower_LogsProblemOnce: a problem is logged once, although the directory is scanned again and again.
func TestFollower_LogsProblemOnce(t *testing.T) {
	r := newRig(t, 10*time.Millisecond)
	r.write("a.yaml", "nonsense")
	r.start()
	r.awaitProblem(r.path("a.yaml") + ":1: ")
	r.posts.Await(t, "primed")
	r.write("b.yaml", manifest("b", 80))
	r.posts.Await(t, "spec default/b")
	r.write("b.yaml", manifest("b", 81))
	r.posts.Await(t, "spec default/b") // the scan before this one has logged
	if n := r.logs.FilterMessageSnippet("rejected invalid manifest").Len(); n != 1 {
		t.Errorf("logged %d times", n)
	}
}
