package rival

import (
	"net"
	"os"
	"testing"
	"time"
)

// A successor takes many listening sockets over: whoever connects before, during or after finds
// somebody listening, and the former owner learns when the successor has finished.
func TestSocketsArePassedOn(t *testing.T) {
	const many = 3*passMax + 7
	var files []*os.File
	var where []string
	for range many {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		file, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		where, files = append(where, l.Addr().String()), append(files, file)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if sockets, done, err := Receive(); sockets != nil || done != nil || err != nil {
		t.Fatalf("without an offer: %v, %v, %v", sockets, done, err)
	}
	offer, err := NewOffer()
	if err != nil {
		t.Fatal(err)
	}
	gave := make(chan error, 1)
	go func() { gave <- offer.Give(files, time.Minute) }()
	sockets, done, err := Receive()
	if err != nil || len(sockets) != many {
		t.Fatalf("%d sockets, want %d: %v", len(sockets), many, err)
	}
	select {
	case err := <-gave:
		t.Fatalf("the former owner ends before its successor has finished: %v", err)
	default:
	}
	if err := done.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-gave; err != nil {
		t.Error(err)
	}
	for i, socket := range sockets {
		if err := files[i].Close(); err != nil {
			t.Error(err)
		}
		client, err := net.Dial("tcp", where[i])
		if err != nil {
			t.Fatalf("refused while nobody accepts: %v", err)
		}
		l, err := net.FileListener(socket)
		if err != nil {
			t.Fatal(err)
		}
		if server, err := l.Accept(); err != nil || server.RemoteAddr().String() != client.LocalAddr().String() {
			t.Errorf("accepted %v, %v, want %v", server, err, client.LocalAddr())
		}
		for _, c := range []interface{ Close() error }{client, l, socket} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A successor that is killed does not keep the former owner.
func TestASuccessorThatEnds(t *testing.T) {
	offer, err := NewOffer()
	if err != nil {
		t.Fatal(err)
	}
	gave := make(chan error, 1)
	go func() { gave <- offer.Give(nil, time.Hour) }()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: passName, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-gave; err == nil {
		t.Error("no error")
	}
}
