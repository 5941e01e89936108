package sysctl

import (
	"errors"
	"strings"
	"testing"
)

func TestIPv6(t *testing.T) {
	const (
		addresses = "proc/thread-self/net/if_inet6"
		disabled  = "proc/sys/net/ipv6/conf/all/disable_ipv6"
		loopback  = "00000000000000000000000000000001 01 80 10 80       lo\n"
	)
	for _, tt := range []struct {
		name  string
		files map[string]string
		need  string // "" with IPv6
	}{
		{"with an address", map[string]string{addresses: loopback, disabled: "0\n"}, ""},
		{"one interface has it", map[string]string{addresses: loopback, disabled: "1\n"}, ""},
		{"without an address", map[string]string{addresses: "", disabled: "0\n"}, ""},
		{"switched off", map[string]string{addresses: "", disabled: "1\n"}, "disable_ipv6=0"},
		{"not in the kernel", map[string]string{"proc/x": ""}, "ipv6.disable=1"},
		{"without the sysctl", map[string]string{addresses: ""}, ""},
	} {
		err := newRoot(t, tt.files).IPv6()
		missing, isMissing := errors.AsType[*NoIPv6Error](err)
		if (tt.need != "") != isMissing || isMissing && !strings.Contains(missing.Need, tt.need) {
			t.Errorf("%s: %v, want one that needs %q", tt.name, err, tt.need)
		}
	}
}
