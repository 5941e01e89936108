// SPDX-License-Identifier: Apache-2.0

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

// scanner holds the state of the files of a directory. The follower's goroutine owns it.
type scanner struct {
	dir    string
	policy reduce.Policy
	files  map[string]*fileState // by path
	// changed reports that the objects of a file may have changed since the flag was reset.
	changed bool
	// unsettled reports that the last scan left out a file which someone seems
	// to be writing, so that the next scan should be soon.
	unsettled bool
}

// fileState is what is known about one file.
type fileState struct {
	stamp   stamp
	content [sha256.Size]byte
	// readable is false when reading failed, or before the first time; such a
	// file is tried every time.
	readable bool
	// objects are those of the last good reading, and problems say why the newest one is not applied.
	objects  []object
	problems []Problem
}

// stamp changes when a file is replaced or written. It includes the change time because tools can set the modification
// time back.
type stamp struct {
	device, inode     uint64
	size              int64
	modified, changed time.Time
}

func newScanner(dir string, policy reduce.Policy) *scanner {
	return &scanner{dir: dir, policy: policy, files: make(map[string]*fileState), changed: true}
}

// scan reads the files that are new, differ in their stamp, or are named in touched, and forgets those that are gone.
// On an error the directory could not be listed and nothing has changed.
func (s *scanner) scan(touched map[string]bool) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	s.unsettled = false
	before := s.files
	s.files = make(map[string]*fileState, len(entries))
	for _, entry := range entries {
		path := filepath.Join(s.dir, entry.Name())
		info, err := os.Stat(path) // follows links, as ConfigMap volumes need
		if !manifestName(entry.Name()) || errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
			continue
		}
		f := before[path]
		delete(before, path)
		if f == nil {
			f = &fileState{}
		}
		s.files[path] = f
		if err == nil {
			err = s.read(f, path, info, touched[entry.Name()])
		}
		if err != nil {
			if inside, ok := errors.AsType[*fs.PathError](err); ok {
				err = inside.Err // the problem names the path already
			}
			f.readable, f.problems = false, []Problem{{File: path, Message: "cannot be read: " + err.Error()}}
		}
	}
	s.changed = s.changed || len(before) > 0 // gone
	return nil
}

// read reads one file if there is reason to.
func (s *scanner) read(f *fileState, path string, info fs.FileInfo, touched bool) error {
	now := stampOf(info)
	if f.readable && f.stamp == now && !touched {
		return nil
	}
	if f.readable && f.stamp.size > 0 && info.Size() == 0 && time.Since(info.ModTime()) < emptyGrace {
		s.unsettled = true
		return nil
	}
	data, err := readBounded(path, info)
	if err != nil {
		return err
	}
	content := sha256.Sum256(data)
	same := f.readable && f.content == content
	f.stamp, f.content, f.readable = now, content, true
	if same {
		return nil
	}
	objects, problems := parse(path, data, s.policy)
	if f.problems = problems; len(problems) == 0 {
		f.objects, s.changed = objects, true
	}
	return nil
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
