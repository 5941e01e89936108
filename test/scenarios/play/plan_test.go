// SPDX-License-Identifier: Apache-2.0

package play

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

// tally counts changes of a server.
type tally struct{ set, removed int }

func (c *tally) Set(string, runtime.Object)    { c.set++ }
func (c *tally) Remove(string, string, string) { c.removed++ }

// TestPlan_ExamineShowsQuestionsAsksNone: Examine passes on the questions of a scenario without asking them.
func TestPlan_ExamineShowsQuestionsAsksNone(t *testing.T) {
	const text = `S-X-1 t
    service
    settle
    p1 -> cluster => a b as client
    run true
    delete service s
    ipv6 x@p1 -> vip:81/udp => refused
`
	all, err := script.Parse("f", text)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(all[0], "nftables")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var objects tally
	if err := plan.Examine(&objects, func(q Asked) error {
		got = append(got, fmt.Sprint(q.Line.Number, " ", q.Question, " from ", q.Source, ": ", q.Names, q.Saw, q.Fate, q.Left, objects))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"4 p1 to 172.30.0.41:80/tcp from invalid AddrPort: [a b]client0 [settle] {3 0}",
		"4 p1 to [fd00:172:30::41]:80/tcp from invalid AddrPort: [a b]client0 [settle] {3 0}",
		"7 x to [2001:db8:2::41]:81/udp from [fd00:10:244:1::14]:0: []1 [settle run] {3 1}",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	stop := errors.New("enough")
	if err := plan.Examine(&tally{}, func(Asked) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error %v, want %v", err, stop)
	}
}
