// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// unlandedFile contains the names of the Services whose writes do not land, for the next process.
	unlandedFile = "unlanded.json"
	// unlandedAgain is the interval between two records. The process may be killed at any time.
	unlandedAgain = time.Second
)

// unlanded records the Services whose writes do not land, so that the next process, also after a crash, tries them last
// and alone.
type unlanded struct {
	file string
	log  *zap.Logger
}

// read returns what was recorded last, maybe by another process. It may be called at any time.
func (u unlanded) read() (keys []service.Key) {
	text, err := os.ReadFile(u.file)
	var names []string
	if err == nil {
		err = json.Unmarshal(text, &names)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		u.log.Info("cannot read which Services did not land; they are tried with all others", zap.Error(err))
	}
	for _, name := range names {
		if namespace, name, ok := strings.Cut(name, "/"); ok {
			keys = append(keys, service.Key{Namespace: namespace, Name: name})
		}
	}
	return keys
}

// run records until the context ends. Until the first sync, it keeps earlier records: they may not have been tried yet.
func (u unlanded) run(ctx context.Context, synced <-chan struct{}, unlanded func() []service.Key) {
	former := map[service.Key]bool{}
	for _, key := range u.read() {
		former[key] = true
	}
	recorded := former
	for ctx.Err() == nil {
		now := map[service.Key]bool{}
		select {
		case <-synced:
		default:
			maps.Copy(now, former)
		}
		for _, key := range unlanded() {
			now[key] = true
		}
		if !maps.Equal(now, recorded) {
			if err := u.write(now); err != nil {
				u.log.Info("cannot record which Services do not land; the next process tries them with all others", zap.Error(err))
			}
			recorded = now
		}
		sleep.For(ctx, unlandedAgain)
	}
}

// write replaces the record.
func (u unlanded) write(keys map[service.Key]bool) error {
	names := []string{}
	for key := range keys {
		names = append(names, key.String())
	}
	slices.Sort(names)
	return record(u.file, names)
}

// record writes a file for the next process. A crash leaves the old content or the new one.
func record(file string, content any) error {
	text, err := json.Marshal(content)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	return err
}
