// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
)

// TestGraceful_NoConnectionCutBeforeDeadline plays random changes, connections, failures and restarts. An endpoint with
// connections stays until a deadline after it left, and in the end the kernel has what is wanted.
func TestGraceful_NoConnectionCutBeforeDeadline(t *testing.T) {
	for seed := range uint64(60) {
		say(t, nil, func(t *testing.T, f *farewell) {
			rng := rand.New(rand.NewPCG(seed, 7))
			some := func() string {
				return strings.TrimSpace(strings.Map(func(r rune) rune {
					if r != ' ' && rng.IntN(3) == 0 {
						return ' '
					}
					return r
				}, "a b c d e"))
			}
			all := strings.Fields("a b c d e")
			wanted, busy := "a b c d e", ""
			f.serve(wanted)
			// left is when each endpoint was last wanted; zero while it is.
			left := map[string]time.Time{}
			for range 40 {
				switch rng.IntN(6) {
				case 0, 1:
					before := wanted
					wanted = some()
					for _, l := range all {
						if strings.Contains(wanted, l) {
							delete(left, l)
						} else if strings.Contains(before, l) {
							left[l] = time.Now()
						}
					}
				case 2:
					// A connection begins only where new ones go.
					busy = strings.Map(func(r rune) rune {
						if strings.ContainsRune(busy, r) && rng.IntN(3) > 0 || strings.ContainsRune(wanted, r) {
							return r
						}
						return -1
					}, "abcde")
				case 3:
					f.fault = func(line string) error {
						if strings.Contains(line, " real server ") && rng.IntN(2) == 0 {
							return []error{wire.ErrUnanswered, &wire.NotSentError{Err: wire.ErrUnanswered}}[rng.IntN(2)]
						}
						return nil
					}
				case 4:
					if err := f.w.Close(); err != nil {
						t.Fatal(err)
					}
					f.begin(f.config())
					f.read()
				case 5:
					f.pass(time.Duration(rng.IntN(40)) * time.Second)
				}
				f.connect(busy)
				f.port.Cluster = set(wanted)
				receipt := f.write(f.changes(f.scaffold(), f.objects(f.port)))
				if f.fault = nil; receipt.Outcome != dataplane.Landed {
					f.read()
					f.serve(wanted)
				}
				has := f.has(f.port.ClusterIP)
				for _, l := range all {
					since, gone := left[l]
					switch {
					case !gone && !strings.Contains(has, l+"=1"), gone && strings.Contains(has, l+"=1"):
						t.Fatalf("seed %d: %q is wanted, the kernel has %q", seed, wanted, has)
					case gone && strings.Contains(busy, l) && time.Since(since) < mode && !strings.Contains(has, l+"=0"):
						t.Fatalf("seed %d: %s left %v ago with connections, the kernel has %q", seed, l, time.Since(since), has)
					}
					if !strings.Contains(has, l) {
						busy = strings.ReplaceAll(busy, l, "")
					}
				}
			}
			f.pass(2 * mode)
			if has := f.has(f.port.ClusterIP); strings.Contains(has, "=0") || len(f.w.Leaving()) > 0 {
				t.Errorf("seed %d: in the end the kernel has %q, and %v leave", seed, has, f.w.Leaving())
			}
		})
	}
}
