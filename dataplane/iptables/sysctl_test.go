package iptables

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// fakeSysctls are values by path; they refuse to be set when broken says why.
type fakeSysctls struct {
	values map[string]string
	broken error
}

func (f fakeSysctls) Read(path string) (string, error) {
	value, there := f.values[path]
	if !there {
		return "", fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return value, f.broken
}

func (f fakeSysctls) Ensure(path, value, advice string) (bool, error) {
	if f.broken != nil {
		return false, fmt.Errorf("%s: %w; %s", path, f.broken, advice)
	}
	changed := f.values[path] != value
	f.values[path] = value
	return changed, nil
}

func TestEnsureRouteLocalnet(t *testing.T) {
	s := fakeSysctls{values: map[string]string{routeLocalnet: "0"}}
	for i, want := range []bool{true, false} {
		if changed, err := EnsureRouteLocalnet(s); err != nil || changed != want || s.values[routeLocalnet] != "1" {
			t.Errorf("call %d: changed = %v, %v, value %s; want %v", i, changed, err, s.values[routeLocalnet], want)
		}
	}
	s.broken = fs.ErrPermission
	if _, err := EnsureRouteLocalnet(s); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "iptables.localhostNodePorts: false") {
		t.Errorf("error %v, want one that says what to do", err)
	}
}

func TestTCPBeLiberal(t *testing.T) {
	for value, want := range map[string]bool{"0": false, "1": true, "255": true} {
		if got, err := TCPBeLiberal(fakeSysctls{values: map[string]string{tcpBeLiberal: value}}); err != nil || got != want {
			t.Errorf("%s: %v, %v", value, got, err)
		}
	}
	if got, err := TCPBeLiberal(fakeSysctls{}); err != nil || got {
		t.Errorf("without conntrack: %v, %v", got, err)
	}
	s := fakeSysctls{values: map[string]string{tcpBeLiberal: "1"}, broken: fs.ErrPermission}
	if got, err := TCPBeLiberal(s); !errors.Is(err, fs.ErrPermission) || got {
		t.Errorf("unreadable: %v, %v", got, err)
	}
}
