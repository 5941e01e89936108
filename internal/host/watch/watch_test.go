// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/testenv"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFollower_Pause(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	for name, c := range map[string]struct {
		events []int // milliseconds
		due    int
	}{
		"one event":                           {[]int{0}, 20},
		"quiet starts at the last event":      {[]int{0, 15, 30}, 50},
		"never later than the limit":          {[]int{0, 50, 100, 150, 190}, 200},
		"a late event is within the limit":    {[]int{0, 180}, 200},
		"the limit counts from the first one": {[]int{100, 120}, 140},
	} {
		f := Follower{Quiet: 20 * time.Millisecond, Limit: 200 * time.Millisecond}
		if pause := f.pause(start, time.Hour); pause != time.Hour {
			t.Errorf("%s: %v without an event", name, pause)
		}
		for _, event := range c.events {
			f.touch(at(event))
		}
		if pause := f.pause(start, time.Hour); pause != at(c.due).Sub(start) {
			t.Errorf("%s: due after %v, want %d ms", name, pause, c.due)
		}
		if pause := f.pause(at(1000), time.Hour); pause != 0 {
			t.Errorf("%s: %v after it was due", name, pause)
		}
	}
}

// TestFollower_BeingWritten: a fault counts once it has lasted for the limit, and a different fault starts a new
// period.
func TestFollower_BeingWritten(t *testing.T) {
	f, start := Follower{Limit: time.Second}, time.Unix(1000, 0)
	for i, step := range []struct {
		after time.Duration
		fault string
		want  bool
	}{
		{0, "", false}, {0, "a", true}, {999 * time.Millisecond, "a", true}, {time.Second, "a", false}, {time.Second, "b", true},
		{1500 * time.Millisecond, "", false}, {2 * time.Second, "b", true}, {3 * time.Second, "b", false},
	} {
		if got := f.BeingWritten(step.fault, start.Add(step.after)); got != step.want {
			t.Errorf("step %d: %t", i, got)
		}
	}
}

// TestFollower_Run: a look names the changed files, also after their directory was replaced, and reports a missing
// directory.
func TestFollower_Run(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	looks := make(chan Seen)
	f := Follower{
		Paths: func() []string { return []string{dir} },
		Quiet: 20 * time.Millisecond, Limit: 200 * time.Millisecond,
		Look: func(s Seen) time.Duration {
			select {
			case looks <- s:
			case <-t.Context().Done():
			}
			return 20 * time.Millisecond
		},
	}
	go f.Run(t.Context())
	await := func(what string, is func(Seen) bool) {
		t.Helper()
		for deadline := time.After(testenv.Patience); ; {
			select {
			case s := <-looks:
				if is(s) {
					return
				}
			case <-deadline:
				t.Fatal("never: " + what)
			}
		}
	}
	await("the directory is missing", func(s Seen) bool { return s.Unwatched != nil })
	check(t, os.Mkdir(dir, 0o700))
	await("it is there", func(s Seen) bool { return s.Unwatched == nil })
	file := filepath.Join(dir, "a")
	check(t, os.WriteFile(file, nil, 0o600))
	await("a file is touched", func(s Seen) bool { return s.Touched[file] })
	check(t, os.Rename(dir, dir+".old"))
	check(t, os.Mkdir(dir, 0o700))
	await("the directory is replaced", func(s Seen) bool { return s.Touched[dir] })
	check(t, os.WriteFile(file, nil, 0o600))
	await("a file in the new one is touched", func(s Seen) bool { return s.Touched[file] })
}

// TestWayTo_ConfigMap: WayTo returns the mount's directory, the directory behind the link and the file of a ConfigMap.
func TestWayTo_ConfigMap(t *testing.T) {
	dir := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, "x"), 0o700))
	check(t, os.WriteFile(filepath.Join(dir, "x", "config.conf"), nil, 0o600))
	check(t, os.Symlink("x", filepath.Join(dir, "..data")))
	check(t, os.Symlink(filepath.Join("..data", "config.conf"), filepath.Join(dir, "config.conf")))
	paths := WayTo(filepath.Join(dir, "config.conf"))
	want := filepath.Join(dir, "x", "config.conf")
	if paths[len(paths)-1] != want || !slices.Contains(paths, dir) || !slices.Contains(paths, filepath.Dir(want)) {
		t.Errorf("%v, want %s last", paths, want)
	}
}

// TestWayTo: WayTo ends a loop of links after 40 links, as the kernel does.
func TestWayTo(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	check(t, os.Symlink(a, b))
	check(t, os.Symlink("b", a))
	if paths := WayTo(a); len(paths) == 0 || len(paths) > 2*linksMax+1 {
		t.Errorf("%d paths", len(paths))
	}
}
