// SPDX-License-Identifier: Apache-2.0

// Command pod is what runs in the pods of the installation's test. Its image has nothing else.
//
//	pod                                        wait: a pod's first process
//	pod serve PORT                             answer as a netnstest.Backend does, with the host name
//	pod ask TCP-OR-UDP ADDRESS:PORT TIMES       ask such a server, each time on a new connection
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	// The first process of a process namespace ends on a signal only if it asks for it.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-stop
		os.Exit(0)
	}()
	args := os.Args[1:]
	// `make image` gives every image the same arguments, which are not for this program.
	if len(args) == 0 || args[0] == "proxy" {
		select {}
	}
	var err error
	switch {
	case args[0] == "serve" && len(args) == 2:
		err = serve(args[1])
	case args[0] == "ask" && len(args) == 4:
		err = ask(args[1], args[2], args[3])
	default:
		err = fmt.Errorf("unknown arguments %q", args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(1)
	}
}

// serve greets each client with the host name and the client's address, and echoes what it sends.
func serve(port string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	streams, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	datagrams, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return err
	}
	go func() {
		question := make([]byte, 64)
		for {
			if _, client, err := datagrams.ReadFrom(question); err == nil {
				_, _ = datagrams.WriteTo([]byte(name+" "+client.String()), client) // who lost it asks again
			}
		}
	}()
	for {
		conn, err := streams.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close() // the client has left
			if _, err := fmt.Fprintln(conn, name, conn.RemoteAddr()); err == nil {
				_, _ = io.Copy(conn, conn) // until the client leaves
			}
		}()
	}
}

// askMax bounds one question.
const askMax = 5 * time.Second

func ask(network, address, times string) error {
	n, err := strconv.Atoi(times)
	if err != nil {
		return err
	}
	for range n {
		if err := askOnce(network, address); err != nil {
			return err
		}
	}
	return nil
}

func askOnce(network, address string) error {
	conn, err := net.DialTimeout(network, address, askMax)
	if err != nil {
		return err
	}
	defer conn.Close() // the answer has come
	if err := conn.SetDeadline(time.Now().Add(askMax)); err != nil {
		return err
	}
	if strings.HasPrefix(network, "udp") {
		if _, err := conn.Write([]byte("?")); err != nil {
			return err
		}
	}
	answer := make([]byte, 256)
	size, err := conn.Read(answer)
	if err == nil && size == 0 {
		err = errors.New("an empty answer")
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", network, address, err)
	}
	fmt.Print(strings.TrimSpace(string(answer[:size])), "\n")
	return nil
}
