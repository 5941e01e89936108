// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// recorder records what the kernel had around each loss in IPVS mode: an exchange is given up
// long after whatever happened to it.
type recorder struct {
	node *netns.Namespace
	dir  string
	// losses has the losses that watch has not seen yet. Beyond its capacity they are dropped.
	losses chan string
}

func newRecorder(node *netns.Namespace, dir string) *recorder {
	return &recorder{node: node, dir: dir, losses: make(chan string, samplesMax)}
}

// lost reports a loss. It does not block.
func (r *recorder) lost(what string) {
	select {
	case r.losses <- what:
	default:
	}
}

// instant notes one occurrence, with its time.
func (r *recorder) instant(what string) error {
	file, err := os.OpenFile(filepath.Join(r.dir, "instants.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, time.Now().Format("15:04:05.000"), what)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// watch looks at the kernel again and again, and writes a file for each of the first losses with the
// last looks, until the context ends.
func (r *recorder) watch(ctx context.Context) error {
	const interval, looks = 5 * time.Second, 24
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var past []string
	for number := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			past = append(past, r.shown("ipvsadm", "-Ln"))
			past = past[max(0, len(past)-looks):]
		case what := <-r.losses:
			if number++; number > samplesMax {
				continue
			}
			now := []string{what, r.shown("ipvsadm", "-Lnc"), r.shown("ip", "-br", "addr"), r.shown("conntrack", "-L")}
			file := filepath.Join(r.dir, fmt.Sprintf("loss-%d.txt", number))
			if err := os.WriteFile(file, []byte(strings.Join(append(now, past...), "\n")), 0o600); err != nil {
				return err
			}
		}
	}
}

// shown returns what a program prints about the node's kernel, its errors included.
func (r *recorder) shown(program string, args ...string) string {
	var printed strings.Builder
	fmt.Fprintf(&printed, "== %s %s %s\n", time.Now().Format("15:04:05.000"), program, strings.Join(args, " "))
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := netnstest.Run(r.node, cmd); err != nil {
		fmt.Fprintln(&printed, err)
	}
	return printed.String()
}
