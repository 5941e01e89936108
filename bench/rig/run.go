// SPDX-License-Identifier: Apache-2.0

// Package rig is what all measurements of this module share: how they start, wait, read /proc and print.
package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/process"
)

// Main runs a command until it ends or a signal arrives, and exits with status 1 if it fails.
func Main(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	if stop(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Round returns a duration with three digits or so.
func Round(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	default:
		return d.Round(time.Microsecond).String()
	}
}

// Progress reports on standard error.
func Progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// InFolder runs a measurement with a temporary directory. The directory stays if the measurement fails.
func InFolder(name string, run func(dir string) error) error {
	dir, err := os.MkdirTemp("", name+"-")
	if err != nil {
		return err
	}
	if err := run(dir); err != nil {
		Progress("  the logs are in %s", dir)
		return err
	}
	return os.RemoveAll(dir)
}

// Sleep waits for a duration and reports false if the context ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Await tries until there is no error. It fails if the context or the process ends first.
func Await(ctx context.Context, process *process.Daemon, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-process.Ended():
			return fmt.Errorf("%s: %s\n%s", process.LogFile(), process.End(), process.Tail(10))
		case <-ctx.Done():
			return fmt.Errorf("%s: not ready in time: %w\n%s", process.LogFile(), err, process.Tail(5))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Get requests a page of a server in a namespace, on a new connection each time: a connection that stays
// open would count among the descriptors of the process.
func Get(ctx context.Context, from *netns.Namespace, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true}
	client := http.Client{Timeout: time.Minute, Transport: transport}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return text, err
}

// Choose returns the names that the words select: a whole name, the beginning of names, or a word that also allows. No
// words select all names.
func Choose(words string, names []string, also func(word string) bool) (chosen []string, err error) {
	if words == "" {
		return names, nil
	}
	for word := range strings.SplitSeq(words, ",") {
		found := []string{word}
		if !slices.Contains(names, word) && !also(word) {
			found = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
				return word == "" || !strings.HasPrefix(name, word)
			})
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%q: must be the beginning of one of %s", word, strings.Join(names, ", "))
		}
		for _, name := range found {
			if !slices.Contains(chosen, name) {
				chosen = append(chosen, name)
			}
		}
	}
	return chosen, nil
}
