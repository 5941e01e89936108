package manifest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-proxy/sluice/source/reduce"
)

// fileBytesMax bounds one manifest; 10,000 Services with their slices are about
// a quarter of it.
const fileBytesMax = 64 << 20

// emptyGrace is how long a file that was just emptied keeps its old content.
// Writing in place begins with emptying, and the writer may be slow to go on.
const emptyGrace = time.Second

// scanner finds out which files of a directory have changed. The follower's
// goroutine owns it.
type scanner struct {
	dir    string
	policy reduce.Policy
	seen   map[string]seenFile // by name
	// unsettled reports that the last scan left out a file which someone seems
	// to be writing, so that the next scan should be soon.
	unsettled bool
}

// seenFile is what a file was like when it was read.
type seenFile struct {
	stamp   stamp
	content [sha256.Size]byte
	// readable is false when reading failed, or before the first time; such a
	// file is tried every time.
	readable bool
}

// stamp changes when a file is replaced or written. The change time is among it
// because tools can set the modification time back.
type stamp struct {
	device, inode     uint64
	size              int64
	modified, changed time.Time
}

func newScanner(dir string, policy reduce.Policy) *scanner {
	return &scanner{dir: dir, policy: policy, seen: make(map[string]seenFile)}
}

// scan reads the files that are new, differ in their stamp, or are named in
// touched, and reports those whose content differs, and those that are gone. On
// an error the directory could not be listed and nothing is reported.
func (s *scanner) scan(touched map[string]bool) ([]reading, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var readings []reading
	s.unsettled = false
	present := make(map[string]bool, len(entries))
	for _, entry := range entries {
		name := entry.Name()
		if !manifestName(name) {
			continue
		}
		path := filepath.Join(s.dir, name)
		info, err := os.Stat(path) // follows links, as ConfigMap volumes need
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err == nil && info.IsDir():
			continue
		}
		present[name] = true
		if found, changed := s.look(name, path, info, err, touched[name]); changed {
			readings = append(readings, found)
		}
	}
	return append(readings, s.gone(present)...), nil
}

// look reads one file if there is reason to.
func (s *scanner) look(name, path string, info fs.FileInfo, err error, touched bool) (reading, bool) {
	if err != nil {
		return s.unreadable(name, path, err), true
	}
	now := stampOf(info)
	before := s.seen[name]
	if before.readable && before.stamp == now && !touched {
		return reading{}, false
	}
	if before.readable && before.stamp.size > 0 && info.Size() == 0 && time.Since(info.ModTime()) < emptyGrace {
		s.unsettled = true
		return reading{}, false
	}
	data, err := readBounded(path, info)
	if err != nil {
		return s.unreadable(name, path, err), true
	}
	content := sha256.Sum256(data)
	s.seen[name] = seenFile{stamp: now, content: content, readable: true}
	if before.readable && before.content == content {
		return reading{}, false
	}
	objects, problems := parse(path, data, s.policy)
	return reading{file: path, objects: objects, problems: problems}, true
}

func (s *scanner) unreadable(name, path string, err error) reading {
	s.seen[name] = seenFile{}
	var inside *fs.PathError
	if errors.As(err, &inside) {
		err = inside.Err // the path is told anyway
	}
	return reading{file: path, problems: []Problem{{File: path, Message: "cannot be read: " + err.Error()}}}
}

func (s *scanner) gone(present map[string]bool) []reading {
	var readings []reading
	for name := range s.seen {
		if !present[name] {
			delete(s.seen, name)
			readings = append(readings, reading{file: filepath.Join(s.dir, name), gone: true})
		}
	}
	return readings
}

// manifestName reports whether a file counts. Editors keep their temporary and
// backup files under hidden names or with a special ending.
func manifestName(name string) bool {
	return !strings.HasPrefix(name, ".") &&
		slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

func stampOf(info fs.FileInfo) stamp {
	now := stamp{size: info.Size(), modified: info.ModTime()}
	if system, ok := info.Sys().(*syscall.Stat_t); ok {
		now.device, now.inode = system.Dev, system.Ino
		now.changed = time.Unix(system.Ctim.Unix())
	}
	return now
}

func readBounded(path string, info fs.FileInfo) ([]byte, error) {
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file") // a pipe would block
	}
	if info.Size() > fileBytesMax {
		return nil, fmt.Errorf("larger than %d bytes", fileBytesMax)
	}
	return os.ReadFile(path)
}
