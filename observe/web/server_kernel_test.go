package web

import (
	"net"
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

func TestServerListensInsideANamespace(t *testing.T) {
	node, err := netns.New("node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	c := site()
	c.Inside = node.Do
	s := server(t, c)
	started(t, s)
	address := addressOf(t, s)
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Error("reached from outside")
	}
	if err := node.Do(func() error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}); err != nil {
		t.Error(err)
	}
}
