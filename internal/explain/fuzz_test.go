// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"net/url"
	"testing"
)

// FuzzQuestion: an accepted question is valid, and the same after it was sent to the proxy.
func FuzzQuestion(f *testing.F) {
	f.Add("10.0.0.1", "10.96.0.10:53/udp", "")
	f.Add("[fd00::1]:4711", "[fd00::2]:80", "cni0")
	f.Add("::ffff:10.0.0.1", "10.0.0.2:80/SCTP", "a&to=x\n")
	f.Add("fe80::1%eth0", "[fe80::2%25]:1", "\x00")
	f.Fuzz(func(t *testing.T, from, to, iface string) {
		q, err := ParseFlow(from, to, iface)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		if q.Check() != nil || q.To.Port() == 0 {
			t.Errorf("accepted %+v", q)
		}
		query, err := url.ParseQuery(q.Query().Encode())
		if err != nil {
			t.Fatal(err)
		}
		if back, err := QuestionIn(query); err != nil || back != q {
			t.Errorf("%+v arrives as %+v, %v", q, back, err)
		}
	})
}
