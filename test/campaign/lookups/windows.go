// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// windows are the times in which a table was missing: from before its deletion until the proxy
// has logged the repair.
type windows struct {
	mu   sync.Mutex
	all  service.PerFamily[[]window]
	went []time.Duration // when the proxy was continued
}

// window is one of them. Until is zero while the table is missing.
type window struct{ from, until time.Duration }

// settled is how long after a packet it is known whether a window had begun.
const settled = time.Second

func newWindows(log string) *windows {
	w := &windows{}
	go w.follow(log)
	return w
}

// follow reads the proxy's log until the program ends.
func (w *windows) follow(log string) {
	file, err := os.Open(log)
	if err != nil {
		return
	}
	lines, begun := bufio.NewReader(file), ""
	for {
		line, err := lines.ReadString('\n')
		begun += line
		if err == io.EOF {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		for _, family := range service.Families {
			if strings.Contains(begun, "rules restored") && strings.Contains(begun, family.String()) {
				w.close(family)
			}
		}
		begun = ""
	}
}

func (w *windows) close(family service.Family) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all := w.all[family]; len(all) > 0 && all[len(all)-1].until == 0 {
		all[len(all)-1].until = time.Since(epoch)
	}
}

func (w *windows) continued() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.went = append(w.went, time.Since(epoch))
}

// wipe deletes both tables, as another program would, unless one is missing anyway.
func (w *windows) wipe(node *netns.Namespace) error {
	if w.open() {
		return nil
	}
	return w.damage(node, damage{"", "delete table ip kube-proxy\ndelete table ip6 kube-proxy\n", service.Families[:]})
}

// damage does damage.
func (w *windows) damage(node *netns.Namespace, d damage) error {
	w.mu.Lock()
	for _, family := range d.families {
		w.all[family] = append(w.all[family], window{from: time.Since(epoch)})
	}
	w.mu.Unlock()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(d.commands)
	return netnstest.Run(node, cmd)
}

// awaitRepair waits until no table is missing, and returns the time of the longest last repair of
// these families.
func (w *windows) awaitRepair(ctx context.Context, families []service.Family, most time.Duration) (took time.Duration, err error) {
	for end := time.Now().Add(most); w.open(); {
		if time.Now().After(end) || ctx.Err() != nil {
			return 0, errors.Join(ctx.Err(), errors.New("the rules were not restored"))
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, family := range families {
		last := w.all[family][len(w.all[family])-1]
		took = max(took, last.until-last.from)
	}
	return took, nil
}

// repaired returns when the last repair of a family ended. There must have been one.
func (w *windows) repaired(family service.Family) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[family][len(w.all[family])-1].until
}

// open reports whether a table is missing.
func (w *windows) open() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, all := range w.all {
		if len(all) > 0 && all[len(all)-1].until == 0 {
			return true
		}
	}
	return false
}

// state reports whether a packet was sent while its table was missing, and else its age since the
// last repair. It is not known yet if the packet is too young.
func (w *windows) state(s seen) (missing bool, age time.Duration, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(epoch)-s.sent < settled {
		return false, 0, false
	}
	age = s.sent
	for _, one := range w.all[s.family] {
		switch {
		case s.sent < one.from:
		case one.until == 0 || s.sent <= one.until:
			return true, 0, true
		default:
			age = s.sent - one.until
		}
	}
	return false, age, true
}

// before tells when the proxy was continued before a packet.
func (w *windows) before(s seen) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := "the proxy was never stopped"
	for _, at := range w.went {
		if at < s.sent {
			text = fmt.Sprintf("%v after the proxy was continued", (s.sent - at).Round(time.Millisecond))
		}
	}
	return text
}

// missing returns the time without a table, of the first family.
func (w *windows) missing() (sum time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.all[service.IPv4] {
		sum += max(0, one.until-one.from)
	}
	return sum
}
