package rival

import (
	"fmt"
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/holder"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

func TestWhoIsAProxy(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  bool
	}{
		{[]string{"/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf"}, true},
		{[]string{"kube-proxy"}, true},
		{[]string{"kube-proxy", "--cleanup"}, false},
		{[]string{"kube-proxy", "--cleanup=true"}, false},
		{[]string{"kube-proxy", "--cleanup=false"}, true},
		{[]string{"kube-proxy", "--init_only"}, false},
		{[]string{"kube-proxy", "--version"}, false},
		{[]string{"kube-proxy", "--write-config-to=f"}, false},
		{[]string{"/hyperkube", "kube-proxy", "--v=2"}, true},
		{[]string{"/hyperkube", "kubelet"}, false},
		{[]string{"sluice", "proxy", "--config", "f"}, true},
		{[]string{"sluice", "run", "--manifests", "m"}, true},
		{[]string{"sluice", "run", "--manifests", "m", "--sandbox"}, false},
		{[]string{"sluice", "cleanup"}, false},
		{[]string{"sluice"}, false},
		{[]string{"vi", "kube-proxy"}, false},
		{[]string{""}, false},
		{nil, false},
	} {
		if isProxy(c.words) != c.want {
			t.Errorf("%q: want %v", c.words, c.want)
		}
	}
}

func TestSightingsInWords(t *testing.T) {
	if got := fmt.Sprint(Sighting{Process: holder.Process{PID: 7}, Ports: []uint16{10249, 10256}}); got != "pid 7, which listens on 10249 and 10256 as kube-proxy does" {
		t.Error(got)
	}
}

// look looks for proxies from inside a namespace.
func look(t *testing.T, n *netns.Namespace, waits func(int) bool) (all []Sighting) {
	t.Helper()
	err := n.Do(func() (err error) {
		var l Looker
		all, err = l.Look(waits)
		if err == nil {
			again, _ := l.Look(waits)
			if fmt.Sprint(again) != fmt.Sprint(all) {
				err = fmt.Errorf("first %v, then %v", all, again)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestKernelWhoIsSeen: a process by its name, only in this namespace; but not one that waits
// for this process.
func TestKernelWhoIsSeen(t *testing.T) {
	n := netnstest.New(t, "rivals")
	nobody := func(int) bool { return false }
	start(t, nil, "idle", "kube-proxy", "--elsewhere")
	start(t, n, "listen 127.0.0.1:10256", "another")
	if all := look(t, n, nobody); len(all) != 0 {
		t.Fatalf("nobody is there, and seen are %v", all)
	}
	proxy := start(t, n, "listen [::]:10249", "kube-proxy", "--here")
	want := fmt.Sprintf("[pid %d (kube-proxy --here), which listens on 10249]", proxy.Process.Pid)
	if all := look(t, n, nobody); fmt.Sprint(all) != want {
		t.Errorf("%v, want %s", all, want)
	}
	if all := look(t, n, func(pid int) bool { return pid == proxy.Process.Pid }); len(all) != 0 {
		t.Errorf("it waits, and seen are %v", all)
	}
}

// TestKernelBothPortsWithoutTheName, as k3s has them.
func TestKernelBothPortsWithoutTheName(t *testing.T) {
	n := netnstest.New(t, "rivals")
	other := start(t, n, "listen 127.0.0.1:10249 [::]:10256", "k3s", "server")
	want := fmt.Sprintf("[pid %d (k3s server), which listens on 10249 and 10256 as kube-proxy does]", other.Process.Pid)
	if all := look(t, n, func(int) bool { return false }); fmt.Sprint(all) != want {
		t.Errorf("%v, want %s", all, want)
	}
}

// TestKernelOwnPortsAreNoRivals.
func TestKernelOwnPortsAreNoRivals(t *testing.T) {
	n := netnstest.New(t, "rivals")
	for _, at := range []string{"127.0.0.1:10249", "[::]:10256"} {
		l, err := n.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	if all := look(t, n, func(int) bool { return false }); len(all) != 0 {
		t.Errorf("seen are %v", all)
	}
}
