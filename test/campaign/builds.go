// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sluice-proxy/sluice/test/defects"
)

// build is one build of the program.
type build struct {
	version string
	// rejects reports whether its renderer spoils the Service rejectedName.
	rejects bool
	binary  string
}

// builds are the first one, which serves every Service, and those that take turns after it.
func builds(reject bool) []build {
	return []build{{version: "campaign-0"}, {version: "campaign-1", rejects: reject}, {version: "campaign-2", rejects: reject}}
}

// place says in which directory the program is.
func (b *build) place(dir string) {
	b.binary = filepath.Join(dir, "sluice-"+b.version)
	if b.rejects {
		b.binary += "-rejecting"
	}
}

// checkOut writes the source of a commit into a directory.
func checkOut(ctx context.Context, source, commit, dir string) (string, error) {
	of := filepath.Join(dir, "_"+commit)
	if err := os.MkdirAll(of, 0o700); err != nil {
		return "", err
	}
	archive := exec.CommandContext(ctx, "git", "archive", commit)
	archive.Dir = source
	packed, err := archive.Output()
	if err != nil {
		return "", fmt.Errorf("check out %s, which needs the history: %w", commit, err)
	}
	unpack := exec.CommandContext(ctx, "tar", "-x")
	unpack.Dir, unpack.Stdin = of, bytes.NewReader(packed)
	if printed, err := unpack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack %s: %w: %s", commit, err, printed)
	}
	return of, nil
}

// compile builds the program into a directory.
func (b *build) compile(ctx context.Context, source, dir string) error {
	began := time.Now()
	b.place(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	files := ""
	if b.rejects {
		// The go command does not look for packages in a directory of such a name.
		within := filepath.Join(dir, "_overlay")
		if err := os.MkdirAll(within, 0o700); err != nil {
			return err
		}
		var err error
		if files, err = defects.Overlay(source, within, defects.Rejecting(rejectedName)...); err != nil {
			return err
		}
	}
	if err := defects.Build(ctx, source, files, b.binary, "build", "-ldflags", "-X main.version="+b.version, "./cmd/sluice"); err != nil {
		return fmt.Errorf("%s: %w", b.version, err)
	}
	fmt.Printf("built %s in %v\n", b.version, time.Since(began).Round(time.Second))
	return nil
}
