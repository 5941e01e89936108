// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// rejected is the answer to a request with an attribute.
func rejected(flags uint16, extended ...byte) Message {
	request, mark := BeginNetfilter(nil, unix.NFNL_SUBSYS_NFTABLES, 5, 0, 2)
	request = Finish(AppendText(request, 1, "odd"), mark)
	b := binary.NativeEndian.AppendUint32(nil, ^uint32(unix.ENOENT)+1)
	b = append(b, request[:HeaderBytes]...)
	if flags&unix.NLM_F_CAPPED == 0 {
		b = append(b, request[HeaderBytes:]...)
	}
	return Message{Kind: unix.NLMSG_ERROR, Flags: flags, Payload: append(b, extended...)}
}

func TestParseAnswer(t *testing.T) {
	extended := AppendHostUint32(AppendText(nil, extendedText, "no such set"), extendedOffset, 44)
	for name, c := range map[string]struct {
		message  Message
		want     Rejection
		repeated bool
	}{
		"plain":               {rejected(0), Rejection{Errno: unix.ENOENT}, true},
		"extended":            {rejected(unix.NLM_F_ACK_TLVS, extended...), Rejection{unix.ENOENT, "no such set", 44}, true},
		"extended and capped": {rejected(unix.NLM_F_ACK_TLVS|unix.NLM_F_CAPPED, extended...), Rejection{unix.ENOENT, "no such set", 44}, false},
	} {
		a, ok := ParseAnswer(c.message)
		if !ok || a.Rejection != c.want {
			t.Errorf("%s: got %+v, %t; want %+v", name, a.Rejection, ok, c.want)
		}
		if got := bytes.Contains(a.Request, []byte("odd")); got != c.repeated {
			t.Errorf("%s: the request is repeated: %t, want %t", name, got, c.repeated)
		}
		if !errors.Is(a.Err(), unix.ENOENT) {
			t.Errorf("%s: error %v", name, a.Err())
		}
	}
	if _, ok := ParseAnswer(Message{Kind: unix.NLMSG_ERROR, Payload: []byte{1, 2, 3}}); ok {
		t.Error("three bytes were taken for an answer")
	}
	if _, ok := ParseAnswer(Message{Kind: unix.NLMSG_DONE, Payload: make([]byte, 64)}); ok {
		t.Error("the end of a dump was taken for an answer")
	}
	if err := new(Answer).Err(); err != nil {
		t.Errorf("success is an error: %v", err)
	}
	if got, want := (&Rejection{Errno: unix.EEXIST, Text: "overlaps"}).Error(), "file exists (overlaps)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEnding(t *testing.T) {
	done := func(errno unix.Errno) Message {
		return Message{Kind: unix.NLMSG_DONE, Payload: binary.NativeEndian.AppendUint32(nil, -uint32(errno))}
	}
	for name, c := range map[string]struct {
		message     Message
		interrupted bool
		want        error
	}{
		"the end":                {done(0), false, nil},
		"interrupted":            {done(0), true, ErrInterrupted},
		"interrupted by number":  {done(unix.EINTR), false, ErrInterrupted},
		"an error in the middle": {done(unix.EINVAL), true, unix.EINVAL},
		"a rejection":            {rejected(0), false, unix.ENOENT},
	} {
		if got := ending(c.message, c.interrupted); !errors.Is(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
